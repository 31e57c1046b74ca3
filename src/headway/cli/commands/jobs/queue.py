"""queue: prints the queue once, or updates it on the screen. Its table is declared here; the columns of the queue's page are in
`web/views/queue/queue_columns.py`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import Terminal, detect_terminal, paint, without_control_characters
from headway.domain.slurm.job_label import job_label
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.errors import Refused

if TYPE_CHECKING:
    from headway.schemas.clusters import ClusterOut
    from headway.schemas.jobs import JobOut
    from headway.sdk.client import Client

WATCH_S = 2.0


def queue(
    cluster: ClusterName = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Include recently ended jobs.")] = False,
    user: Annotated[str, typer.Option("--user", "-u", help="Show only this user's jobs.")] = "",
    state: Annotated[str, typer.Option("--state", "-t", help="Show only jobs in this state, such as RUNNING.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every 2 seconds until ^C.")] = False,
    output: Output = Format.table,
) -> None:
    """Show the queue: jobs, users, nodes, and why a job waits."""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if watch:
        _watch(api, name, all=all, user=user, state=state.upper())
        return
    jobs, seen = api.jobs.list(name, all=all, user=user, state=state.upper()), api.clusters.get(name)
    common.warn_if_stale(seen)
    if output is Format.json:
        print_json(jobs)
        return
    for line in _lines(seen, jobs, detect_terminal()):
        common.print_line(line)


def _lines(seen: ClusterOut, jobs: list[JobOut], terminal: Terminal) -> list[str]:
    if not jobs:
        return [f"no jobs on {seen.name}"]
    lines = queue_lines(jobs, terminal)
    if any(job.gpus for job in jobs) and seen.simulated_gpus:
        lines.append(paint(formatting.SIMULATED_NOTE, "warn", terminal))
    return lines


def queue_lines(jobs: list[JobOut], terminal: Terminal) -> list[str]:
    """Returns the table: running jobs first, then those that wait, then those that ended."""
    columns = [
        tables.Column("JOB", right=True), tables.Column("NAME", shrink=True), tables.Column("USER", shrink=True, drop_order=1),
        tables.Column("TEAM", shrink=True, drop_order=5), tables.Column("PARTITION", drop_order=4), tables.Column("STATE"),
        tables.Column("TIME", right=True), tables.Column("NODES", right=True, drop_order=3), tables.Column("GPUS", right=True),
        tables.Column("LOSS", right=True, drop_order=2), tables.Column("WHERE OR WHY", shrink=True, min_width=21),
    ]  # fmt: skip
    ranked = sorted(jobs, key=lambda j: (j.state not in RUNNING, j.state not in WAITING, j.id))
    return tables.table_lines(columns, [_row(job) for job in ranked], terminal)


def nodes_or_reason(job: JobOut) -> str:
    """Returns the job's nodes, or the reason why it waits or ended."""
    place = job.nodelist or ",".join(job.nodes)
    reason = job.reason if job.reason not in {"", "None"} else ""
    if job.state in RUNNING:
        return place
    if job.exit_code and job.state == "FAILED":
        return f"exit code {job.exit_code}"
    if job.state in WAITING and job.why:
        return job.why
    return f"({reason})" if reason else place


def _row(job: JobOut) -> list[tables.Cell]:
    restarts = f" x{job.restarts + 1}" if job.restarts else ""
    return [
        job_label(job.id, job.array_job_id, job.array_task),
        job.name,
        job.user,
        job.account,
        job.partition,
        [(job.state, formatting.job_style(job.state)), (restarts, "warn")],
        formatting.duration(job.elapsed_s),
        str(job.node_count or len(job.nodes) or ""),
        str(job.gpus or "-"),
        job.progress.loss_word(3) if job.progress else "",
        nodes_or_reason(job),
    ]


def _watch(api: Client, name: str, *, all: bool, user: str, state: str) -> None:
    if not sys.stdout.isatty():
        raise Refused("--watch needs a terminal", hint="use headway queue -o json")
    sys.stdout.write("\x1b[?1049h\x1b[?25l")  # the alternate screen, no cursor
    try:
        while True:
            terminal = detect_terminal()
            jobs, seen = api.jobs.list(name, all=all, user=user, state=state), api.clusters.get(name)
            lines = _lines(seen, jobs, terminal)
            old = paint(f"  OLD: {without_control_characters(seen.stale)}", "warn", terminal) if seen.stale else ""
            head = f"{paint(name, 'bold', terminal)}  {time.strftime('%H:%M:%S')}  (^C ends){old}"
            _draw([head, "", *lines])
            time.sleep(WATCH_S)
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _draw(lines: list[str]) -> None:
    import shutil

    rows = shutil.get_terminal_size().lines
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"... {len(lines) - rows + 1} more"]
    sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
    sys.stdout.flush()
