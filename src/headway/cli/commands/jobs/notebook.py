"""notebook: starts JupyterLab as a job and prints the address that opens it in a browser."""

from __future__ import annotations

import os
import sys
import time as clock
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain import notebook_defaults
from headway.errors import Conflict

if TYPE_CHECKING:
    from headway.schemas.submission.notebooks import NotebookOut
    from headway.sdk.client import Client

POLL_S = 1.0


def notebook(
    cluster: ClusterName = None,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="Number of GPUs.")] = notebook_defaults.GPUS,
    time: Annotated[
        str, typer.Option("--time", help="Time limit: minutes, HH:MM:SS or D-HH:MM:SS.")
    ] = notebook_defaults.TIME_LIMIT,
    partition: Annotated[str, typer.Option("-p", "--partition", help="Partition.")] = "",
    team: Annotated[str, typer.Option("--team", help="Team (Slurm account) that is charged.")] = "",
    idle: Annotated[
        int,
        typer.Option(
            "--idle", metavar="MINUTES", min=1, help="Minutes without activity after which the notebook ends."
        ),
    ] = notebook_defaults.IDLE_MINUTES,
    output: Output = Format.table,
) -> None:
    """Start JupyterLab on a node and print a URL that opens it once; open it in a browser where there is one.

    A notebook of yours that already runs is opened instead. headway cancel ends it.

    headway notebook --gpus 1"""
    from headway.schemas.submission.notebooks import NotebookIn

    api = common.connect()
    where = common.choose_cluster(api, cluster)
    there = [
        notebook_out
        for notebook_out in api.notebooks.list(where)
        if notebook_out.mine and notebook_out.state != "ended"
    ]
    if there:
        found = there[0]
        common.print_note(
            f"job {found.job_id} is already your notebook; end it with headway cancel {where} {found.job_id}"
        )
    else:
        ask = NotebookIn(gpus=gpus, time=time, partition=partition, team=team, idle_minutes=idle)
        found = api.notebooks.start(where, ask)
        common.print_note(f"Submitted batch job {found.job_id} on {where} as {found.user}")
    found = _running(api, where, found)
    link = api.notebooks.link(where, found.id)
    if output is Format.json:
        print_json(link)
        return
    common.print_line(link.url)
    common.print_note("The URL works once and expires after a minute; run headway notebook again for another browser.")
    if sys.stdout.isatty() and (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        typer.launch(link.url)


def _running(api: Client, cluster: str, found: NotebookOut) -> NotebookOut:
    """Waits until it answers, and says why it does not yet. Raises Conflict when it ended instead."""
    shown = ""
    while found.state != "running":
        if found.state == "ended":
            raise Conflict(
                f"the notebook of job {found.job_id} ended{f': {found.why}' if found.why else ''}",
                hint=f"headway logs {cluster} {found.job_id}",
            )
        now = f"waits: {found.why}" if found.state == "waiting" and found.why else found.state
        if now != shown:
            common.print_note(f"job {found.job_id} {now}")
            shown = now
        clock.sleep(POLL_S)
        found = api.notebooks.get(cluster, found.id)
    return found
