"""ssh, exec, cp, ssh-config: getting in, with plain OpenSSH where it is there."""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import session, ssh_files
from headway.cli.registry import WORDS_AFTER_DASHES
from headway.cli.session import ClusterName, Format, Output, complete_cluster
from headway.errors import Conflict, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.schemas.people import AccessOut
    from headway.sdk.client import Client

_REMOTE = re.compile(r"^(?:([A-Za-z0-9._-]+)@)?([a-z][a-z0-9-]*):")
PIECE = 64 * 1024  # bytes of standard input sent at once


def ssh(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLUSTER] [NODE]",
            help="Cluster, for its login node, or a node where you have a job (default: the only cluster).",
            autocompletion=complete_cluster,
        ),
    ] = None,
) -> None:
    """Log in to a cluster, or to a node where you have a job. Runs ssh with pinned host keys.

    headway ssh lab-1-2 -- nvidia-smi"""
    access, target = _resolve_target(session.connect(), words or [])
    config = ssh_files.write_ssh_config(access)
    exec_program(["ssh", "-F", str(config), target, *(ctx.meta.get(WORDS_AFTER_DASHES) or [])])


def _resolve_target(api: Client, words: list[str]) -> tuple[AccessOut, str]:
    """(its cluster, what is meant there): a node's name alone says its cluster."""
    if len(words) > 2:
        raise typer.BadParameter(f"unexpected argument {words[2]!r}; put a command after --")
    if not words:
        access = api.clusters.ssh_access(session.choose_cluster(api, None))
        return access, access.cluster
    session.require_cluster_name(words[0])
    if len(words) == 1:
        return _access_of(api, words[0], [c.name for c in api.clusters.list()]), words[0]
    cluster, node = words
    access = api.clusters.ssh_access(cluster)
    if node not in _machines(access):
        raise NotFound(f"{cluster} has no machine {node}", hint=f"headway nodes {cluster}")
    return access, node


def _access_of(api: Client, host: str, clusters: list[str]) -> AccessOut:
    """Of the cluster of this name, or of the one that has a machine of it. Raises NotFound."""
    if host in clusters:
        return api.clusters.ssh_access(host)
    unready: Conflict | None = None
    for cluster in sorted((c for c in clusters if host.startswith(f"{c}-")), key=len, reverse=True):
        try:
            access = api.clusters.ssh_access(cluster)
        except Conflict as error:  # it has no machine yet
            unready = error
            continue
        if host in _machines(access):
            return access
    raise unready or NotFound(f"no cluster or node is named {host}", hint="headway ls")


def _machines(access: AccessOut) -> set[str]:
    return {access.head, *access.machines}


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
    api = session.connect()
    pieces = api.commands.stream(session.choose_cluster(api, cluster), argv, user, None if no_stdin else _stdin())
    with closing(pieces):
        for kind, data in pieces:
            if kind == "code":
                raise typer.Exit(int(data))
            stream = sys.stdout if kind == "out" else sys.stderr
            stream.buffer.write(data)
            stream.buffer.flush()


def _stdin() -> Callable[[], bytes] | None:
    """Reads standard input piece by piece, past Python's own buffer, which a thread may not hold when we end. None when
    there is none."""
    try:
        number = sys.stdin.fileno()
        mode, null = os.fstat(number), Path(os.devnull).stat()
    except (OSError, ValueError, AttributeError):
        return None
    return None if mode.st_rdev == null.st_rdev and stat.S_ISCHR(mode.st_mode) else partial(os.read, number, PIECE)


def cp(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE... TARGET", help="A local path, or CLUSTER:PATH or NODE:PATH."),
    ],
) -> None:
    """Copy files to and from a cluster. Runs scp with pinned host keys; all flags of scp are accepted.

    headway cp -r ./data lab:data"""
    api = session.connect()
    names = [c.name for c in api.clusters.list()]
    config = None
    for host in dict.fromkeys(match.group(2) for word in words if (match := _REMOTE.match(word))):
        config = ssh_files.write_ssh_config(_access_of(api, host, names))
    if config is None:
        raise typer.BadParameter("give the cluster before a colon, as in lab:path")
    exec_program(["scp", "-F", str(config), *words])


def ssh_config(
    cluster: ClusterName = None,
    install: Annotated[bool, typer.Option("--install", help="Add an Include line to ~/.ssh/config.")] = False,
    output: Output = Format.table,
) -> None:
    """Print ssh Host blocks with pinned host keys, or install them for ssh, scp, rsync and editors.

    headway ssh-config --install"""
    api = session.connect()
    every = install and cluster is None
    names = [c.name for c in api.clusters.list()] if every else [session.choose_cluster(api, cluster)]
    found = [api.clusters.ssh_access(name) for name in names]
    for access in found:
        ssh_files.write_ssh_config(access)
    if output is Format.json:
        session.print_json(found if every else found[0])
    elif not install:
        for access in found:
            session.print_line(ssh_files.config_text(access).rstrip("\n"))
    if install:
        path, new = ssh_files.install_include()
        session.print_note(f"{path} {'now includes' if new else 'includes already'} {ssh_files.ssh_folder()}/*.conf")
        for access in found:
            session.print_note(f"  ssh {access.cluster}")


def exec_program(argv: list[str]) -> None:
    """This process turns into `argv`: its terminal, signals and exit code are the program's."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except FileNotFoundError:
        raise Refused(f"{argv[0]} is not installed here", hint="apt install openssh-client") from None
