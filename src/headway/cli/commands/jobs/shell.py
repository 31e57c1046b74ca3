"""shell: starts an interactive shell on a node, as a job."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import common, ssh_config_files
from headway.cli.common import ClusterName
from headway.cli.exec_program import SSH_PACKAGE, exec_program
from headway.cli.registry import WORDS_AFTER_DASHES
from headway.errors import Refused


def shell(
    ctx: typer.Context,
    cluster: ClusterName = None,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="Number of GPUs.")] = 0,
    cpus: Annotated[
        int, typer.Option("--cpus", min=0, help="Number of CPUs (default: the GPUs' share of the node).")
    ] = 0,
    memory: Annotated[str, typer.Option("--mem", help="Memory, as for sbatch: 64G.")] = "",
    time: Annotated[str, typer.Option("--time", help="Time limit: minutes, HH:MM:SS or D-HH:MM:SS.")] = "",
    partition: Annotated[str, typer.Option("-p", "--partition", help="Partition.")] = "",
    team: Annotated[str, typer.Option("--team", help="Team (Slurm account) that is charged.")] = "",
    image: Annotated[
        str, typer.Option("--container-image", help="Container image, such as docker://ubuntu:24.04.")
    ] = "",
) -> None:
    """Open an interactive shell on a node, or run the command after --, as a job that ends with it.

    headway shell --gpus 1"""
    api = common.connect()
    access = api.clusters.ssh_access(common.choose_cluster(api, cluster))
    config = ssh_config_files.write_ssh_config(access)
    terminal = common.is_interactive()
    command = ctx.meta.get(WORDS_AFTER_DASHES) or ["bash", "-l"]
    step = ["srun", "--job-name=shell", "--nodes=1", "--ntasks=1", *(["--pty"] if terminal else [])]
    for flag, value in (
        ("gpus-per-node", gpus), ("cpus-per-task", cpus), ("mem", memory), ("time", time), ("partition", partition),
        ("account", team), ("container-image", image),
    ):  # fmt: skip
        if value:
            step.append(f"--{flag}={value}")
    if any("\n" in word or "\0" in word for word in [*step, *command]):
        raise Refused("an argument contains a line break")
    import shlex

    exec_program(
        ["ssh", "-F", str(config), *(["-t"] if terminal else []), access.cluster, shlex.join([*step, *command])],
        SSH_PACKAGE,
    )
