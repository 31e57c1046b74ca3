"""The chart of a sweep: the value of each trial, and the best value so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.schemas.submission.sweeps import SweepOut
from headway.web.views.charts.axis_ticks import even_ticks, log_ticks

WIDTH, HEIGHT = 640.0, 220.0  # units of the drawing
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 12.0, 26.0
_LOG_RANGE = 100.0  # values that differ by more get a logarithmic axis


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """A trial in the chart."""

    x: float
    y: float
    number: int
    state: str
    text: str
    best: bool


@dataclass(frozen=True, slots=True)
class SweepChart:
    """Points and ticks in units of the drawing. `best_path`: an SVG path of the best value so far, of trials that ended well."""

    points: tuple[TrialPoint, ...]
    best_path: str
    y_ticks: tuple[tuple[float, str], ...]
    x_ticks: tuple[tuple[float, str], ...]
    logarithmic: bool


def sweep_chart(sweep: SweepOut) -> SweepChart | None:
    """Returns the chart; None as long as no trial has a value."""
    values = [(trial, trial.value) for trial in sweep.trials if trial.value is not None]
    if not values:
        return None
    numbers = [value for _, value in values]
    low, high = min(numbers), max(numbers)
    logarithmic = low > 0 and high / low > _LOG_RANGE
    scale = math.log10 if logarithmic else float
    begin, end = scale(low), scale(high)
    margin = (end - begin) * 0.08 or abs(begin) * 0.1 or 1.0
    begin, end = begin - margin, end + margin
    last = max(sweep.trials[-1].number, 2)

    def x_of(number: float) -> float:
        return round(_LEFT + (number - 1) / (last - 1) * (WIDTH - _LEFT - _RIGHT), 1)

    def y_of(value: float) -> float:
        return round(HEIGHT - _BOTTOM - (scale(value) - begin) / (end - begin) * (HEIGHT - _TOP - _BOTTOM), 1)

    points = tuple(
        TrialPoint(
            x_of(trial.number), y_of(value), trial.number, trial.state, f"{value:.6g}", trial.number == sweep.best
        )
        for trial, value in values
    )
    done = [(x_of(trial.number), value) for trial, value in values if trial.state == "done"]
    marks = log_ticks(10**begin, 10**end) if logarithmic else even_ticks(begin, end)
    return SweepChart(
        points,
        _best_path([(x, value, y_of(value)) for x, value in done], maximize=sweep.goal == "maximize"),
        tuple((y_of(value), f"{value:.6g}") for value in marks),
        tuple((x_of(number), str(number)) for number in sorted({1, (last + 1) // 2, last})),
        logarithmic,
    )


def _best_path(done: Sequence[tuple[float, float, float]], *, maximize: bool) -> str:
    """Returns steps at the best value so far, from (x, value, y) in the order of trials."""
    path, best = "", None
    for x, value, y in done:
        if best is None:
            best, path = value, f"M{x} {y}"
        elif (value > best) if maximize else (value < best):
            best, path = value, f"{path}H{x}V{y}"
    return f"{path}H{WIDTH - _RIGHT}" if path else ""
