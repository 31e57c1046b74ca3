"""Prints the metrics of a training: newest value, range and curve."""

from __future__ import annotations

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.terminal import detect_terminal
from headway.schemas.training_metrics import TrainingChartsOut, TrainingMetricsOut, TrainingSeriesOut

_CURVE = 32  # characters


def print_training_metrics(found: TrainingMetricsOut, charts: TrainingChartsOut | None) -> None:
    """Prints a row for each series of `charts`."""
    if charts is None:
        common.print_line(f"job {found.job} has reported no metrics; a training reports them with headway_train.report")
        return
    newest = {one.name: one for one in found.metrics}
    columns = [
        tables.Column("METRIC", shrink=True), tables.Column("STEP", right=True), tables.Column("VALUE", right=True),
        tables.Column("LOWEST", right=True, drop_order=2), tables.Column("HIGHEST", right=True, drop_order=2),
        tables.Column("POINTS", right=True, drop_order=3), tables.Column("CURVE", drop_order=1),
    ]  # fmt: skip
    terminal = detect_terminal()
    tables.print_table(
        columns,
        [
            [one.name, f"{newest[one.name].step}", newest[one.name].text, *_range(one), f"{one.points}",
             [(formatting.sparkline([value for value in one.values if value is not None], terminal, _CURVE), "busy")]]
            for one in charts.series
        ],
    )  # fmt: skip
    left = len(found.metrics) - len(charts.series)
    if left > 0 and len(charts.series) > 1:
        common.print_note(f"{left} further metrics: name them with --metric, or use -o json")
    if found.dropped:
        common.print_note(f"{found.dropped} reports are not kept, or not completely: {found.note}")


def _range(series: TrainingSeriesOut) -> tuple[str, str]:
    lows, highs = ([value for value in column if value is not None] for column in (series.lows, series.highs))
    return (f"{min(lows):.6g}", f"{max(highs):.6g}") if lows else ("", "")
