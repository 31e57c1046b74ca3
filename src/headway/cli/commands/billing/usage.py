"""usage: the GPU time of jobs; their runs; the states of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.option_conflicts import require_unset
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import ReportFormat, ReportOutput, print_for_programs, print_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.schemas.billing.node_states import NodeStatesOut
    from headway.schemas.billing.usage import UsageOut, UsageRow
    from headway.sdk.resources.billing import RunFilters

_NODE_STATE_STYLES = {"down": "bad", "drained": "warn", "spare": "dim", "off": "dim"}


def usage(
    cluster: ClusterName = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="FIELDS", help="Group by team, user, partition, gpu or group; separate several with commas."
        ),
    ] = "team",
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Start: month, date or ISO 8601 time (default: start of this month)."
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="End, exclusive: month, date or ISO 8601 time (default: now).")
    ] = "",
    team: Annotated[str, typer.Option("--team", help="Only this team.")] = "",
    user: Annotated[str, typer.Option("--user", help="Only this user.")] = "",
    partition: Annotated[str, typer.Option("--partition", help="Only this partition.")] = "",
    gpu: Annotated[str, typer.Option("--gpu", help="Only this GPU type; - for runs without GPUs.")] = "",
    group: Annotated[str, typer.Option("--group", help="Only this node group.")] = "",
    runs: Annotated[bool, typer.Option("--runs", help="List the runs instead of sums.")] = False,
    cause: Annotated[
        str, typer.Option("--cause", help="List the runs with this cause of loss, as headway goodput prints it.")
    ] = "",
    job: Annotated[int, typer.Option("--job", help="List the runs of one job instead of sums.")] = 0,
    nodes: Annotated[bool, typer.Option("--nodes", help="List node states over time instead of sums.")] = False,
    output: ReportOutput = ReportFormat.table,
) -> None:
    """Report the GPU time of jobs, from Slurm's accounting.

    headway usage --by team,user --from 2026-10 --to 2026-11
    headway usage --runs --team vision -o csv"""
    which: RunFilters = {"team": team, "user": user, "partition": partition, "gpu": gpu, "group": group}
    if nodes:
        of_runs = {**which, "group": "", "cause": cause, "job": job, "runs": runs}
        require_unset(of_runs, "--nodes", "node states are selected by --group, --from and --to")
    if nodes or runs or job or cause:
        require_unset({"by": by != "team"}, "--nodes" if nodes else "--runs, --job and --cause", "it applies to sums")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if nodes:
        _print_node_states(
            _pages(
                lambda cursor: api.billing.node_states(name, start=start, end=end, group=group, cursor=cursor), "states"
            ),
            output,
        )
    elif runs or job or cause:
        _print_runs(
            _pages(
                lambda at: api.billing.usage_runs(name, job=job, cause=cause, start=start, end=end, **which, cursor=at),
                "runs",
            ),
            output,
        )
    else:
        _print_sums(api.billing.usage(name, by=by.split(","), start=start, end=end, **which), output)


def _print_sums(found: UsageOut, output: ReportFormat) -> None:
    if found.stale:
        common.print_note(f"accounting can't be read now, the data is old: {found.stale}")
    if print_for_programs(found, output):
        return
    if not found.rows:
        common.print_line(
            f"nothing ran on {found.cluster} from {formatting.local_time(found.start)} to {formatting.local_time(found.end)}"
        )
        return
    columns = [
        *(tables.Column(word.upper(), shrink=True) for word in found.rows[0].by),
        tables.Column("RUNS", right=True),
        tables.Column("GPU-HOURS", right=True),
        tables.Column("LOST", right=True, drop_order=2),
        tables.Column("IDLE", right=True, drop_order=2),
        tables.Column("WAITED H", right=True, drop_order=3),
        tables.Column("KWH", right=True, drop_order=4),
        tables.Column("USD", right=True),
    ]
    rows = [_usage_cells(row, list(row.by.values())) for row in found.rows]
    blank = ["" for _ in found.rows[0].by][1:]
    rows.append(_usage_cells(found.total, ["all", *blank]))
    print_rows(columns, rows)
    if any(row.energy_estimated for row in found.rows):
        common.print_note("~ energy is partly estimated, not measured")
    if found.simulated:
        common.print_note(formatting.SIMULATED_NOTE)


def _usage_cells(row: UsageRow, names: Sequence[str]) -> list[tables.Cell]:
    kwh = f"{'~' if row.energy_estimated else ''}{row.energy_kwh:,.1f}"
    figures = (row.gpu_hours, row.lost_gpu_hours, row.idle_gpu_hours, row.waited_hours)
    return [
        *(name or "-" for name in names),
        f"{row.runs:,}",
        *(f"{figure:,.2f}" for figure in figures),
        kwh,
        formatting.usd(row.usd),
    ]


def _pages(ask: Callable[[str], Any], field: str) -> Any:
    """Returns all pages of an answer as one."""
    found = ask("")
    while found.next:
        more = ask(found.next)
        rows = [*getattr(found, field), *getattr(more, field)]
        found = found.model_copy(update={field: rows, "next": more.next})
    return found


def _print_node_states(found: NodeStatesOut, output: ReportFormat) -> None:
    if print_for_programs(found, output):
        return
    columns = [
        tables.Column("NODE"), tables.Column("STATE"), tables.Column("FROM"), tables.Column("LASTED", right=True),
        tables.Column("REASON", shrink=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            row.node, (row.state, _NODE_STATE_STYLES.get(row.state, "")), formatting.local_time(row.start),
            formatting.duration(row.seconds) + ("" if row.end else "+"), row.reason,
        ]
        for row in found.states
    ]  # fmt: skip
    print_rows(columns, rows)


def _print_runs(found: Any, output: ReportFormat) -> None:
    if print_for_programs(found, output):
        return
    columns = [
        tables.Column("JOB", right=True),
        tables.Column("USER", shrink=True, drop_order=3),
        tables.Column("STATE"),
        tables.Column("BEGAN"),
        tables.Column("ALLOCATED", right=True),
        tables.Column("WAITED", right=True),
        tables.Column("LOST", right=True),
        tables.Column("IDLE", right=True),
        tables.Column("GPUS", right=True),
        tables.Column("NODES", shrink=True),
        tables.Column("KWH", right=True, drop_order=4),
        tables.Column("USD", right=True),
    ]
    rows: list[list[tables.Cell]] = [
        [
            str(run.job), run.user, run.state, formatting.local_time(run.start), formatting.duration(run.allocated_s),
            formatting.duration(run.waited_s), formatting.duration(run.lost_s) if run.lost_s else "",
            formatting.duration(run.idle_s) if run.idle_s else "", str(run.gpus), run.nodes,
            f"{'~' if run.energy_estimated else ''}{run.energy_kwh:,.2f}", "" if run.usd is None else formatting.usd(run.usd),
        ]
        for run in found.runs
    ]  # fmt: skip
    if not rows:
        common.print_line("no matching run")
    print_rows(columns, rows)
