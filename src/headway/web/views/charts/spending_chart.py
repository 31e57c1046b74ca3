"""Charts of spending: cost by day, the sum of the month with its forecast, and the burn-down of a budget. Pure.

A drawing fills its box in both directions, so its units are the values themselves, and labels are text outside of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.billing.periods import Period
from headway.billing.spending import Step
from headway.services.billing.reports.spending import BurnDown, Spending

HEIGHT = 100.0  # units of a drawing


@dataclass(frozen=True, slots=True)
class DayBar:
    """The bar of one day, in units of the drawing: the lower part was allocated to jobs."""

    step: Step
    number: int  # of the day in the period, from 0
    usd: float
    allocated_usd: float
    top: float
    allocated_top: float


@dataclass(frozen=True, slots=True)
class DayChart:
    """Bars of a month. `ticks`: the labels of the upper end, the middle and the lower end."""

    bars: tuple[DayBar, ...]
    width: int
    ticks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """A cluster's part of the bar of a day."""

    number: int  # of the day in the month, from 0
    of: int  # index of the cluster in ClusterChart.names
    usd: float
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class ClusterChart:
    """Bars of a month, one part for each cluster."""

    names: tuple[str, ...]
    parts: tuple[ClusterPart, ...]
    width: int
    ticks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines of amounts over time as SVG paths: measured, its forecast ("" if none), and one to compare with ("" if none).
    `level`: the height of a limit to mark, None without one."""

    line: str
    forecast: str
    other: str
    width: float
    ticks: tuple[str, ...]
    level: float | None = None


def day_chart(spending: Spending, all_days: int) -> DayChart | None:
    """Returns the cost by day of a month that has `all_days`; None without any cost."""
    most = max((cents for _, cents, _ in spending.days), default=0) / 100
    if most <= 0:
        return None
    high = round_up(most)
    bars = tuple(
        DayBar(
            step,
            number,
            cents / 100,
            used / 100,
            _height(cents / 100, high),
            _height(used / 100, high),
        )
        for number, (step, cents, used) in enumerate(spending.days)
    )
    return DayChart(bars, all_days, ticks_of(high))


def cluster_chart(found: Sequence[tuple[str, Spending]], all_days: int) -> ClusterChart | None:
    """Returns the cost by day of clusters in a month that has `all_days`; None without any cost."""
    sums = [0.0] * (all_days + 1)
    for _, spending in found:
        for number, (_, cents, _) in enumerate(spending.days):
            sums[number] += cents / 100
    if max(sums) <= 0:
        return None
    high, at = round_up(max(sums)), [0.0] * len(sums)
    parts = []
    for of, (_, spending) in enumerate(found):
        for number, (_, cents, _) in enumerate(spending.days):
            below, at[number] = at[number], at[number] + cents / 100
            top = _height(at[number], high)
            if cents:
                parts.append(ClusterPart(number, of, cents / 100, top, round(_height(below, high) - top, 2)))
    return ClusterChart(tuple(name for name, _ in found), tuple(parts), all_days, ticks_of(high))


def sum_chart(spending: Spending, month: Period, now: int) -> LineChart | None:
    """Returns the sum of the month, its forecast, and the month before; None without any cost."""
    steps = [Step(step.start, min(step.end, now), step.amount) for step, _, _ in spending.days]
    mine = _sums(steps, month.start)
    before = _sums(spending.before, spending.before[0].start) if spending.before else []
    forecast = (
        [] if spending.forecast_cents is None else [mine[-1], (float(month.seconds), spending.forecast_cents / 100)]
    )
    most = max((usd for _, usd in [*mine, *before, *forecast]), default=0.0)
    if most <= 0:
        return None
    high, width = round_up(most), float(max(month.seconds, before[-1][0] if before else 0))
    return LineChart(_path(mine, high), _path(forecast, high), _path(before, high), width, ticks_of(high))


def burn_down_chart(found: BurnDown, now: int) -> LineChart:
    """Returns how much of a budget was left over time, its forecast, and the line of an even use."""
    budget = found.budget
    steps = [Step(step.start, min(step.end, now), step.amount) for step in found.steps]
    left = [(x, max(0.0, budget.limit - used)) for x, used in _sums(steps, budget.start)]
    width = float(budget.end - budget.start)
    end = (width, budget.limit - found.forecast)
    if found.spent_at is not None:
        end = (float(found.spent_at - budget.start), 0.0)
    high = budget.limit or 1.0
    return LineChart(
        _path(left, high),
        _path([left[-1], (end[0], max(0.0, end[1]))], high) if left[-1][1] > 0 else "",
        _path([(0.0, budget.limit), (width, 0.0)], high),
        width,
        ticks_of(high),
        _height(budget.limit - budget.warn_at, high),
    )


def _sums(steps: Iterable[Step], start: int) -> list[tuple[float, float]]:
    """Returns (seconds since `start`, sum until then)."""
    found, total = [(0.0, 0.0)], 0.0
    for step in steps:
        total += float(step.amount)
        found.append((float(step.end - start), total))
    return found


def _path(points: Sequence[tuple[float, float]], high: float) -> str:
    return "M" + "L".join(f"{x:.0f} {_height(y, high)}" for x, y in points) if points else ""


def _height(amount: float, high: float) -> float:
    return round(HEIGHT * (1 - amount / high), 2)


def ticks_of(high: float) -> tuple[str, ...]:
    """Returns the labels of the upper end, the middle and the lower end."""
    return tuple(f"{value:,.0f}" if high >= 10 else f"{value:,.2f}" for value in (high, high / 2, 0))


def round_up(amount: float) -> float:
    """Returns the next larger 1, 2, 4, 5, 6 or 8 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(amount))
    return next(step * unit for step in (1, 2, 4, 5, 6, 8, 10) if step * unit >= amount * 0.9999)
