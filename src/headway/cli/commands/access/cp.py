"""cp: copies files to and from a cluster with scp."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from headway.cli import common, ssh_config_files
from headway.cli.exec_program import SSH_PACKAGE, exec_program
from headway.cli.ssh_targets import find_access

_REMOTE = re.compile(r"^(?:([A-Za-z0-9._-]+)@)?([a-z][a-z0-9-]*):")


def cp(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE... TARGET", help="A local path, or CLUSTER:PATH or NODE:PATH."),
    ],
) -> None:
    """Copy files to and from a cluster. Runs scp with pinned host keys; all flags of scp are accepted.

    headway cp -r ./data lab:data"""
    api = common.connect()
    names = [c.name for c in api.clusters.list()]
    config = None
    for host in dict.fromkeys(match.group(2) for word in words if (match := _REMOTE.match(word))):
        config = ssh_config_files.write_ssh_config(find_access(api, host, names))
    if config is None:
        raise typer.BadParameter("give the cluster before a colon, as in lab:path")
    exec_program(["scp", "-F", str(config), *words], SSH_PACKAGE)
