"""Draws a month's hours as a heatmap: one column per day, one row per hour, darker for a larger share of GPUs allocated,
or of free GPUs that are fragmented. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from headway.billing.periods import Period
from headway.schemas.billing.capacity import HourOut, TypeOut

LEVELS = 4  # levels above level 0 (none)


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A heatmap. `kind`: the GPU type. `days`: the days of the month, each one unit wide. `levels`: level 0 (none)
    to LEVELS (all) -> an SVG path of its hours, a unit square each; an hour without any such GPU is in none. `said`:
    the picture in words."""

    kind: str
    title: str
    ends: tuple[str, str]  # texts at both ends of the scale
    days: tuple[int, ...]
    levels: dict[int, str]
    summary: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A share of GPU-hours to draw, with its texts."""

    part: str
    whole: str
    title: str
    ends: tuple[str, str]
    of: str
    none: str


_PARTS = (
    _Part("allocated", "present", "hour by hour", ("none allocated", "all"), "Share of GPUs allocated", "none allocated"),
    _Part(
        "fragmented", "free", "free in pieces, hour by hour", ("none in pieces", "all"),
        "Share of free GPUs on nodes that jobs hold others of", "none in pieces",
    ),
)  # fmt: skip


def heat(types: Iterable[TypeOut], month: Period, where: tzinfo) -> list[Heatmap]:
    """Returns two heatmaps per GPU type. When an hour occurs twice (end of summer time), the square shows the later one."""
    last = datetime.fromtimestamp(month.end - 1, where).day
    return [
        _heat(gpu_type.gpu_type, part, squares, last)
        for gpu_type in types
        for part in _PARTS
        if (squares := _squares(gpu_type.hours, part, where))
    ]


def _squares(hours: Iterable[HourOut], part: _Part, where: tzinfo) -> dict[tuple[int, int], float]:
    """Returns (day, hour) -> the share."""
    found: dict[tuple[int, int], float] = {}
    for hour in hours:
        if whole := getattr(hour, part.whole):
            at = datetime.fromtimestamp(hour.at, where)
            found[at.day - 1, at.hour] = getattr(hour, part.part) / whole
    return found


def _heat(kind: str, part: _Part, squares: dict[tuple[int, int], float], days: int) -> Heatmap:
    paths: dict[int, list[str]] = {}
    for (day, row), share in sorted(squares.items()):
        paths.setdefault(level(share), []).append(f"M{day} {row}h1v1h-1z")
    (day, hour), most = max(squares.items(), key=lambda square: square[1])
    none = sum(share <= 0 for share in squares.values())
    summary = (
        f"{part.of}: at most {most:.0%}, on day {day + 1} at {hour} h; {part.none} in {none} of {len(squares)} hours"
    )
    levels = {n: "".join(paths[n]) for n in sorted(paths)}
    return Heatmap(kind, f"{kind.upper()}, {part.title}", part.ends, tuple(range(1, days + 1)), levels, summary)


def level(share: float) -> int:
    """Returns 0 for none, LEVELS from seven eighths on, and the quarters in between."""
    return 0 if share <= 0 else min(LEVELS, max(1, round(share * LEVELS)))
