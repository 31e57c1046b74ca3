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

from headway.cli import session, sshfiles
from headway.cli.index import REST
from headway.cli.session import ClusterName, Format, Output, complete_cluster
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.cli.session import Api

_REMOTE = re.compile(r"^(?:([A-Za-z0-9._-]+)@)?([a-z][a-z0-9-]*):")
PIECE = 64 * 1024  # bytes of standard input sent at once


def ssh(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CLUSTER] [NODE]", help="Without a node: the login.", autocompletion=complete_cluster),
    ] = None,
) -> None:
    """Log in to a cluster, or to a node that you have a job on. Runs ssh with pinned host keys.

    headway ssh lab-1-2 -- nvidia-smi"""
    api = session.connect()
    cluster, node = _place(api, words or [])
    access = api.access(cluster)
    target = node or cluster
    if node and node not in {access.head, *access.machines}:
        raise NotFound(f"{cluster} has no machine {node}", hint=f"headway nodes {cluster}")
    config = sshfiles.write(access)
    become(["ssh", "-F", str(config), target, *(ctx.meta.get(REST) or [])])


def _place(api: Api, words: list[str]) -> tuple[str, str]:
    """(cluster, node or ""): a node's name alone says its cluster."""
    if len(words) > 2:
        raise typer.BadParameter(f"what is {words[2]!r}? A command stands after --")
    if len(words) == 2:
        return words[0], words[1]
    if not words:
        return session.pick(api, ""), ""
    names = [c.name for c in api.clusters()]
    if words[0] in names:
        return words[0], ""
    owner = _owner(words[0], names)
    if not owner:
        raise NotFound(f"no cluster and no node is called {words[0]}", hint="headway ls")
    return owner, words[0]


def _owner(node: str, clusters: list[str]) -> str:
    """The cluster whose name a node's name begins with, the longest one; "" for none."""
    return max((c for c in clusters if node.startswith(f"{c}-")), key=len, default="")


def exec_(
    ctx: typer.Context,
    cluster: ClusterName = "",
    user: Annotated[str, typer.Option("-u", "--user", help="As this user.", show_default=True)] = "root",
    no_stdin: Annotated[bool, typer.Option("-n", "--no-stdin", help="Do not pass standard input on.")] = False,
) -> None:
    """Run one command on the login. Output, input and exit code pass through as they come; ^C ends it there too.

    headway exec lab -u alice -- squeue --me"""
    argv = ctx.meta.get(REST)
    if not argv:
        raise typer.BadParameter("the command stands after --: headway exec CLUSTER -- COMMAND")
    api = session.connect()
    pieces = api.command(session.pick(api, cluster), argv, user, None if no_stdin else _stdin())
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
        typer.Argument(metavar="SOURCE... TARGET", help="lab:path or lab-1-2:path on the cluster."),
    ],
) -> None:
    """Copy files to and from a cluster. Runs scp with pinned host keys; every flag of scp may be used.

    headway cp -r ./data lab:data"""
    api = session.connect()
    names = [c.name for c in api.clusters()]
    config = None
    for cluster in dict.fromkeys(_clusters_in(words, names)):
        config = sshfiles.write(api.access(cluster))
    if config is None:
        raise typer.BadParameter("no cluster is named: write it before a colon, as in lab:path")
    become(["scp", "-F", str(config), *words])


def _clusters_in(words: list[str], names: list[str]) -> list[str]:
    found = []
    for word in words:
        match = _REMOTE.match(word)
        if match is None:
            continue
        host = match.group(2)
        cluster = host if host in names else _owner(host, names)
        if not cluster:
            raise NotFound(f"no cluster and no node is called {host}", hint="headway ls")
        found.append(cluster)
    return found


def ssh_config(
    cluster: ClusterName = "",
    install: Annotated[
        bool, typer.Option("--install", help="Add one Include line to ~/.ssh/config, so that every tool finds it.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Host blocks for ssh, and the host keys they pin. Then plain ssh lab, scp, rsync and editors work.

    headway ssh-config --install"""
    api = session.connect()
    every = install and not cluster
    names = [c.name for c in api.clusters()] if every else [session.pick(api, cluster)]
    found = [api.access(name) for name in names]
    for access in found:
        sshfiles.write(access)
    if output is Format.json:
        session.print_json(found if every else found[0])
    elif not install:
        for access in found:
            session.say(sshfiles.config_text(access).rstrip("\n"))
    if install:
        path, new = sshfiles.install()
        session.note(f"{path} {'now includes' if new else 'includes already'} {sshfiles.folder()}/*.conf")
        for access in found:
            session.note(f"  ssh {access.cluster}")


def become(argv: list[str]) -> None:
    """This process turns into `argv`: its terminal, signals and exit code are the program's."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except FileNotFoundError:
        raise Refused(f"{argv[0]} is not installed here", hint="apt install openssh-client") from None
