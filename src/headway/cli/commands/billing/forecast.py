"""forecast: what jobs will use, and when the GPUs are all in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_for_programs, print_rows

if TYPE_CHECKING:
    from headway.schemas.billing.forecast import ForecastOut, PartForecastOut, WaitForecastOut

_WEEK = 7


def forecast(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """Forecast GPU-hours and queue waits by team and size, and when the cluster fills.

    The forecast continues the last sixteen weeks: their level, the days of the week, and a trend if there is one. Its error is
    that of the same forecasts made in the past."""
    api = common.connect()
    found = api.billing.forecast(common.choose_cluster(api, cluster))
    if print_for_programs(found, output):
        return
    for line in _summary(found):
        common.print_line(line)
    if found.forecast:
        common.print_line()
        _print_weeks(found)
    for title, parts, waits in (("TEAM", found.teams, found.team_waits), ("JOBS OF", found.sizes, found.size_waits)):
        if parts:
            common.print_line()
            _print_parts(title, parts, waits)


def _summary(found: ForecastOut) -> list[str]:
    """Returns what the forecast says, in sentences."""
    if found.no_forecast:
        return [f"no forecast: {found.no_forecast}"]
    lines = []
    if found.error is not None:
        words = f"error of a day in the past: {formatting.share(found.error)} of its GPU-hours"
        if found.total_error is not None:
            words += f"; of four weeks: {formatting.share(found.total_error)}"
        if found.within is not None:
            words += f"; {formatting.share(found.within)} of the days were in the band"
        lines.append(f"{words} ({found.tested_days} days compared, method: {found.method})")
    else:
        lines.append("the error is unknown: there is less than a week to compare a forecast with")
    lines.append(_fill_words(found))
    if found.full_days:
        lines.append(
            f"on {found.full_days} of the last {found.compared_days} days 95 % of the GPUs were allocated: jobs would have used"
            " more than is shown"
        )
    return lines


def _fill_words(found: ForecastOut) -> str:
    fills = found.fills
    if fills is None:
        return "no machine with GPUs exists now, so that it is unknown when they fill"
    if fills.earliest is None:
        return f"the {found.gpus} GPUs do not fill within {len(found.forecast) // _WEEK} weeks"
    words = f"the {found.gpus} GPUs are 95 % allocated from {formatting.utc_day(fills.earliest)} at the earliest"
    weeks = len(found.forecast) // _WEEK
    if fills.expected:
        words += f", expected {formatting.utc_day(fills.expected)}"
    else:
        words += f", in the expected case not within {weeks} weeks"
    return words + (f", {formatting.utc_day(fills.latest)} at the latest" if fills.latest else "")


def _print_weeks(found: ForecastOut) -> None:
    columns = [tables.Column("WEEK FROM"), *(tables.Column(one, right=True) for one in ("GPU-HOURS", "OF ALL GPUS"))]
    rows: list[list[tables.Cell]] = []
    for at in range(0, len(found.forecast) - _WEEK + 1, _WEEK):
        week = found.forecast[at : at + _WEEK]
        hours = sum(day.gpu_hours for day in week)
        share = hours / (found.gpus * 24 * _WEEK) if found.gpus else None
        rows.append([formatting.utc_day(week[0].day), f"{hours:,.1f}", formatting.share(share)])
    print_rows(columns, rows)


def _print_parts(title: str, parts: list[PartForecastOut], waits: list[WaitForecastOut]) -> None:
    names = ("LAST 28 DAYS", "NEXT 28 DAYS", "ERROR", "HALF WAIT", "NEXT", "90 % WAIT", "NEXT")
    columns = [tables.Column(title), *(tables.Column(one, right=True) for one in names)]
    waited = {row.name: row for row in waits}
    rows: list[list[tables.Cell]] = []
    for part in parts:
        row = waited.get(part.name)
        times = (row.p50_s, row.next_p50_s, row.p90_s, row.next_p90_s) if row else (None,) * 4
        rows.append(
            [
                part.name,
                f"{part.gpu_hours:,.1f}",
                "-" if part.next_gpu_hours is None else f"{part.next_gpu_hours:,.1f}",
                formatting.share(part.error),
                *("-" if one is None else formatting.duration(one) for one in times),
            ]
        )
    print_rows(columns, rows)
