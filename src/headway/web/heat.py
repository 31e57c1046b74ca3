"""Hours of a month as a picture: a column a day, a row an hour of it, darker the more GPUs were held. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from headway.ledger.periods import Period
from headway.wire.ledger import TypeOut

LEVELS = 4  # above none at all


@dataclass(frozen=True, slots=True)
class Heat:
    """`days`: of the month, a unit of width each. `levels`: level 0 (none held) to LEVELS (all) -> an SVG path of its hours, a
    unit square each; an hour without machines is in none. `said`: the picture in words."""

    title: str
    days: tuple[int, ...]
    levels: dict[int, str]
    said: str


def heat(types: Iterable[TypeOut], month: Period, where: tzinfo) -> list[Heat]:
    """One picture a GPU type. In the night that an hour comes twice, both lie in one square: the later one's."""
    last = datetime.fromtimestamp(month.end - 1, where).day
    return [_heat(one, last, where) for one in types if any(hour.there for hour in one.hours)]


def _heat(one: TypeOut, days: int, where: tzinfo) -> Heat:
    squares: dict[tuple[int, int], float] = {}
    for hour in one.hours:
        if hour.there:
            at = datetime.fromtimestamp(hour.at, where)
            squares[at.day - 1, at.hour] = hour.held / hour.there
    paths: dict[int, list[str]] = {}
    for (day, row), share in sorted(squares.items()):
        paths.setdefault(level(share), []).append(f"M{day} {row}h1v1h-1z")
    return Heat(one.gpu_type, tuple(range(1, days + 1)), {n: "".join(paths[n]) for n in sorted(paths)}, _said(squares))


def level(share: float) -> int:
    """0 for none, LEVELS from seven eighths on, the quarters between."""
    return 0 if share <= 0 else min(LEVELS, max(1, round(share * LEVELS)))


def _said(squares: dict[tuple[int, int], float]) -> str:
    (day, hour), most = max(squares.items(), key=lambda square: square[1])
    idle = sum(share <= 0 for share in squares.values())
    return f"Share of GPUs held: at most {most:.0%}, on day {day + 1} at {hour} h; none held in {idle} of {len(squares)} hours"
