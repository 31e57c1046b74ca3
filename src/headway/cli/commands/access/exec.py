"""exec: runs one command on the login node."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.registry import WORDS_AFTER_DASHES

if TYPE_CHECKING:
    from collections.abc import Callable


PIECE = 64 * 1024  # bytes of standard input sent at once


def exec_(
    ctx: typer.Context,
    cluster: ClusterName = None,
    user: Annotated[
        str, typer.Option("-u", "--user", help="User to run as (default: root for admins, otherwise you).")
    ] = "",
    no_stdin: Annotated[bool, typer.Option("-n", "--no-stdin", help="Do not forward standard input.")] = False,
) -> None:
    """Run one command on the login node. Input, output and exit code are passed through; ^C ends it there too.

    headway exec lab -u alice -- squeue --me"""
    argv = ctx.meta.get(WORDS_AFTER_DASHES)
    if not argv:
        raise typer.BadParameter("put the command after --: headway exec CLUSTER -- COMMAND")
    api = common.connect()
    pieces = api.commands.stream(common.choose_cluster(api, cluster), argv, user, None if no_stdin else _stdin())
    with closing(pieces):
        for kind, data in pieces:
            if kind == "code":
                raise typer.Exit(int(data))
            stream = sys.stdout if kind == "out" else sys.stderr
            stream.buffer.write(data)
            stream.buffer.flush()


def _stdin() -> Callable[[], bytes] | None:
    """Returns a function that reads a piece of standard input, or None when there is no input.

    It reads past Python's own buffer, which a thread may not hold at exit."""
    try:
        number = sys.stdin.fileno()
        mode, null = os.fstat(number), Path(os.devnull).stat()
    except (OSError, ValueError, AttributeError):
        return None
    return None if mode.st_rdev == null.st_rdev and stat.S_ISCHR(mode.st_mode) else partial(os.read, number, PIECE)
