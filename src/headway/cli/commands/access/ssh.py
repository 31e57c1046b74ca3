"""ssh, ssh-config: logs in with OpenSSH, and writes its configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import common, ssh_config_files
from headway.cli.common import ClusterName, complete_cluster
from headway.cli.exec_program import SSH_PACKAGE, exec_program
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.registry import WORDS_AFTER_DASHES
from headway.cli.ssh_targets import resolve_target


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
    access, target = resolve_target(common.connect(), words or [])
    config = ssh_config_files.write_ssh_config(access)
    exec_program(["ssh", "-F", str(config), target, *(ctx.meta.get(WORDS_AFTER_DASHES) or [])], SSH_PACKAGE)


def ssh_config(
    cluster: ClusterName = None,
    install: Annotated[bool, typer.Option("--install", help="Add an Include line to ~/.ssh/config.")] = False,
    output: Output = Format.table,
) -> None:
    """Print ssh Host blocks with pinned host keys, or install them for ssh, scp, rsync and editors.

    headway ssh-config --install"""
    api = common.connect()
    every = install and cluster is None
    names = [c.name for c in api.clusters.list()] if every else [common.choose_cluster(api, cluster)]
    found = [api.clusters.ssh_access(name) for name in names]
    for access in found:
        ssh_config_files.write_ssh_config(access)
    if output is Format.json:
        print_json(found if every else found[0])
    elif not install:
        for access in found:
            common.print_line(ssh_config_files.config_text(access).rstrip("\n"))
    if install:
        path, new = ssh_config_files.install_include()
        common.print_note(
            f"{path} {'now includes' if new else 'includes already'} {ssh_config_files.ssh_folder()}/*.conf"
        )
        for access in found:
            common.print_note(f"  ssh {access.cluster}")
