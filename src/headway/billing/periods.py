"""Periods of invoices and reports: months in the cluster's own zone, so that one with a change of clocks has an hour more or
less, and is billed for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

FIRST, LAST = "2000-01", "2200-12"  # months
_MONTH = re.compile(r"(\d{4})-(\d{2})")


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` until before `end`, in unix seconds. `name` is "2026-10" for a month."""

    name: str
    start: int
    end: int

    @property
    def seconds(self) -> int:
        return self.end - self.start


def zone(name: str) -> tzinfo:
    """Raises ValueError for a name that is no zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone") from error


def month(name: str, where: tzinfo) -> Period:
    """ "2026-10" -> that month. Raises ValueError for what is none."""
    found = _MONTH.fullmatch(name)
    if found is None or not 1 <= int(found[2]) <= 12 or not FIRST <= name <= LAST:
        raise ValueError(f"{name!r} is no month")
    year, number = int(found[1]), int(found[2])
    return Period(name, _midnight(date(year, number, 1), where), _midnight(_next(year, number), where))


def month_of(at: float, where: tzinfo) -> Period:
    """The month that a moment lies in."""
    day = datetime.fromtimestamp(at, where)
    return month(f"{day.year:04d}-{day.month:02d}", where)


def last_week(at: float, where: tzinfo) -> Period:
    """The last whole week, Monday to Sunday: "2026-W41"."""
    today = datetime.fromtimestamp(at, where).date()
    monday = today - timedelta(days=today.weekday())
    first = monday - timedelta(days=7)
    year, number, _ = first.isocalendar()
    return Period(f"{year:04d}-W{number:02d}", _midnight(first, where), _midnight(monday, where))


def before(period: Period, where: tzinfo) -> Period | None:
    """The month before it; None before the first one that there is."""
    return None if period.name == FIRST else month_of(period.start - 1, where)


def moment(text: str, where: tzinfo) -> int:
    """The first moment of "2026-10-03", that of "2026-10" or "2026-10-03T12:30", or unix seconds. Raises ValueError."""
    if text.isascii() and text.isdigit() and len(text) > 4:
        return int(text)
    if _MONTH.fullmatch(text):
        return month(text, where).start
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=where)).timestamp())


def days(start: int, end: int, where: tzinfo) -> list[tuple[int, int]]:
    """The stretch cut at midnights."""
    found = []
    at = start
    while at < end:
        following = _midnight(datetime.fromtimestamp(at, where).date() + timedelta(days=1), where)
        found.append((at, min(following, end)))
        at = following
    return found


def _midnight(day: date, where: tzinfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=where).timestamp())


def _next(year: int, number: int) -> date:
    return date(year + 1, 1, 1) if number == 12 else date(year, number + 1, 1)
