"""Prints the table of trainings, groups of them, and what differs between two."""

from __future__ import annotations

from collections.abc import Sequence

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import print_rows
from headway.cli.output.terminal import without_control_characters
from headway.schemas.trainings import (
    TrainingComparisonOut,
    TrainingGroupsOut,
    TrainingOut,
    TrainingsOut,
    TrainingValuesOut,
)

_FIRST = 3  # metrics that are shown if none is chosen
_COMMIT = 8  # characters of a commit


def print_trainings(found: TrainingsOut, metrics: Sequence[str]) -> None:
    """Prints one row for each training, with a column for each of `metrics` (METRIC, METRIC:lowest or METRIC:highest)."""
    if not found.trainings:
        common.print_line("no training matches; a training reports metrics with headway_train.report")
        return
    shown = list(metrics) or found.names[:_FIRST]
    columns = [
        tables.Column("JOB", right=True), tables.Column("NAME", shrink=True), tables.Column("USER", shrink=True, drop_order=4),
        tables.Column("STATE"), *(tables.Column(name, right=True) for name in shown),
        tables.Column("RESTARTS", right=True, drop_order=5), tables.Column("GPU-HOURS", right=True, drop_order=3),
        tables.Column("USD", right=True, drop_order=3), tables.Column("COMMIT", drop_order=2),
        tables.Column("TAGS", shrink=True, drop_order=1),
    ]  # fmt: skip
    print_rows(columns, [_cells(one, shown) for one in found.trainings])
    left = found.total - len(found.trainings)
    if left > 0:
        common.print_note(f"{left} further trainings: use --limit, or narrow the list")


def _cells(one: TrainingOut, shown: Sequence[str]) -> list[tables.Cell]:
    commit = f"{one.origin.commit[:_COMMIT]}{'+' if one.origin.dirty else ''}" if one.origin else ""
    return [
        one.label, one.name, one.user, _state(one), *(_value(one, name) for name in shown),
        str(one.restarts or ""), f"{one.cost.gpu_hours:,.2f}" if one.cost else "",
        formatting.usd(one.cost.usd) if one.cost else "", commit, ", ".join(one.tags),
    ]  # fmt: skip


def _state(one: TrainingOut) -> tables.Cell:
    return ("stopped by its sweep", "dim") if one.stopped_by else (one.state, formatting.job_style(one.state))


def _value(one: TrainingOut, name: str) -> str:
    metric, _, kind = name.partition(":")
    values = one.metrics.get(metric)
    if values is None:
        return ""
    number = getattr(values, kind or "last")
    return "not finite" if number is None else f"{number:.6g}"


def print_groups(found: TrainingGroupsOut) -> None:
    """Prints one row for each group."""
    columns = [
        tables.Column(found.by.upper(), shrink=True), tables.Column("TRAININGS", right=True),
        tables.Column("GPU-HOURS", right=True), tables.Column("USD", right=True),
    ]  # fmt: skip
    if found.metric:
        columns += [tables.Column(f"{found.metric} {word}", right=True) for word in ("LOWEST", "MEAN", "HIGHEST")]
    rows: list[list[tables.Cell]] = []
    for group in found.groups:
        value = group.value[:_COMMIT] if found.by == "commit" else group.value
        cells: list[tables.Cell] = [
            value or "-", str(group.trainings), "" if group.gpu_hours is None else f"{group.gpu_hours:,.2f}",
            "" if group.usd is None else formatting.usd(group.usd),
        ]  # fmt: skip
        if found.metric:
            cells += [
                "" if group.lowest is None else f"{group.lowest:.6g} (job {group.lowest_job})",
                "" if group.mean is None else f"{group.mean:.6g}",
                "" if group.highest is None else f"{group.highest:.6g} (job {group.highest_job})",
            ]
        rows.append(cells)
    print_rows(columns, rows)


def print_comparison(found: TrainingComparisonOut) -> None:
    """Prints what differs, what is the same, and the metrics of both."""
    columns = [
        tables.Column("DIFFERS", shrink=True), tables.Column(f"JOB {found.first}", shrink=True),
        tables.Column(f"JOB {found.second}", shrink=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [each.what, each.first or "-", each.second or "-"] for each in found.differences if not each.lines
    ]
    rows += [[name, _both(one), _both(other)] for name, (one, other) in found.metrics.items()]
    print_rows(columns, rows)
    for each in found.differences:
        if each.lines:
            common.print_line(f"{each.what}:")
            for line in each.lines:
                common.print_line(f"  {without_control_characters(line)}")
    if found.same:
        common.print_note(f"the same: {', '.join(found.same)}")


def _both(values: TrainingValuesOut | None) -> str:
    if values is None:
        return "-"
    last = "not finite" if values.last is None else f"{values.last:.6g}"
    reached = (
        "" if values.lowest is None or values.highest is None else f" ({values.lowest:.6g} to {values.highest:.6g})"
    )
    return f"{last}{reached} at step {values.step}"
