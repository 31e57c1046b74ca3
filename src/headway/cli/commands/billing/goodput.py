"""goodput: the productive share of GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.month_option import Month
from headway.cli.options.option_conflicts import require_unset
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_for_programs, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.schemas.billing.goodput import PartsOut


def goodput(
    cluster: ClusterName = None,
    period: Month = "",
    job: Annotated[int, typer.Option("--job", help="Report one job, over all its runs, instead of a month.")] = 0,
    output: Output = Format.table,
) -> None:
    """Report the productive share of the GPU time of jobs, and the causes of loss.

    headway goodput --job 104"""
    if job:
        require_unset({"period": period}, "--job", "--job reports all runs of a job")
    api = common.connect()
    if job:
        report = api.billing.job_goodput(common.choose_cluster(api, cluster), job)
        if not print_for_programs(report, output):
            _print_parts("JOB", [(f"{job} ({report.user}), {report.runs} run{'s' * (report.runs != 1)}", report.total)])
        return
    found = api.billing.goodput(common.choose_cluster(api, cluster), period)
    if print_for_programs(found, output):
        return
    _print_parts("TEAM", [*((team.team or "no team", team) for team in found.teams), ("all", found.total)])
    if found.causes:
        common.print_line()
    columns = [
        tables.Column("USD", right=True),
        tables.Column("GPU-HOURS", right=True),
        tables.Column("WHAT", shrink=True, min_width=24),
        tables.Column("JOBS", shrink=True, drop_order=1),
    ]
    rows = [
        [formatting.usd(cause.usd), f"{cause.gpu_hours:,.2f}", cause.what, " ".join(str(job) for job in cause.jobs)]
        for cause in found.causes
    ]
    print_rows(columns, rows)
    better = [checkpoint for checkpoint in found.checkpoints if checkpoint.saves_usd]
    if better:
        common.print_line()
    columns = [
        tables.Column(word, right=True) for word in ("JOB", "SAVES FOR", "EVERY", "BETTER EVERY", "WOULD SAVE USD")
    ]
    rows = [
        [
            str(checkpoint.job),
            f"{checkpoint.write_s:.1f} s",
            formatting.duration(checkpoint.now_s),
            formatting.duration(checkpoint.best_s),
            formatting.usd(checkpoint.saves_usd or 0),
        ]
        for checkpoint in better
    ]
    print_rows(columns, rows)


def _print_parts(what: str, of: Iterable[tuple[str, PartsOut]]) -> None:
    """Prints a table of GPU-hours."""
    words = ("PRODUCTIVE", "LOST", "IDLE", "WAITED", "GOODPUT", "ETTR")
    columns = [tables.Column(what, shrink=True), *(tables.Column(word, right=True) for word in words)]
    rows: list[list[tables.Cell]] = [
        [
            name, f"{parts.productive_gpu_hours:,.2f}", f"{parts.lost_gpu_hours:,.2f}", f"{parts.idle_gpu_hours:,.2f}",
            f"{parts.waited_gpu_hours:,.2f}", formatting.share(parts.goodput), formatting.share(parts.ettr),
        ]
        for name, parts in of
    ]  # fmt: skip
    print_rows(columns, rows)
