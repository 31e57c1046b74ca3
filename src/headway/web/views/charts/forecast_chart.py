"""The chart of a forecast: GPU-hours of past days, of coming days with their band, and what the GPUs offer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.schemas.billing.forecast import ForecastOut
from headway.web.views.charts.spending_chart import HEIGHT, round_up, ticks_of


@dataclass(frozen=True, slots=True)
class ForecastChart:
    """SVG paths; a day is one unit wide. `band` is "" without a backtest. `level`: the height of all GPU-hours of a day, None if
    there are no GPUs. `today`: where the forecast begins. `labels`: first day, today, last day in unix seconds."""

    used: str
    forecast: str
    band: str
    level: float | None
    today: int
    width: int
    ticks: tuple[str, ...]
    labels: tuple[int, ...]


def forecast_chart(found: ForecastOut) -> ForecastChart | None:
    """Returns the chart; None without days in the past."""
    if not found.used:
        return None
    offered = found.gpus * 24.0
    values = [day.gpu_hours for day in found.used]
    values += [day.gpu_hours if day.high is None else day.high for day in found.forecast]
    high = round_up(max([*values, offered]) or 1.0)
    today = len(found.used)
    coming = list(enumerate(found.forecast, start=today))
    upper = [(at + 0.5, day.high) for at, day in coming if day.high is not None]
    lower = [(at + 0.5, day.low) for at, day in coming if day.low is not None]
    past = [(at + 0.5, day.gpu_hours) for at, day in enumerate(found.used)]
    expected = [(at + 0.5, day.gpu_hours) for at, day in coming]
    days = [day.day for day in found.used] + [day.day for day in found.forecast]
    return ForecastChart(
        _path(past, high),
        _path([past[-1], *expected], high) if expected else "",
        _path([*upper, *reversed(lower)], high) + "Z" if upper else "",
        round(HEIGHT * (1 - offered / high), 2) if offered else None,
        today,
        len(days),
        ticks_of(high),
        (days[0], days[today] if found.forecast else days[-1], days[-1]),
    )


def forecast_weeks(found: ForecastOut) -> list[tuple[int, float, float | None]]:
    """Returns (first day in unix seconds, GPU-hours, their share of what the GPUs offer) of each whole week of the forecast."""
    rows = []
    for at in range(0, len(found.forecast) - 6, 7):
        week = found.forecast[at : at + 7]
        hours = sum(day.gpu_hours for day in week)
        rows.append((week[0].day, hours, hours / (found.gpus * 24 * 7) if found.gpus else None))
    return rows


def _path(points: Iterable[tuple[float, float]], high: float) -> str:
    return "M" + "L".join(f"{x:g} {round(HEIGHT * (1 - y / high), 2):g}" for x, y in points)
