"""Periods of invoices and reports. They are months in the time zone of the cluster: a month with a clock change is an
hour longer or shorter and is billed accordingly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

FIRST, LAST = "2000-01", "2200-12"  # first and last accepted month
_MONTH = re.compile(r"(\d{4})-(\d{2})")


@dataclass(frozen=True, slots=True)
class Period:
    """A period from `start` until before `end`, in unix seconds. The `name` of a month is like "2026-10"."""

    name: str
    start: int
    end: int

    @property
    def seconds(self) -> int:
        """Returns the length of the period."""
        return self.end - self.start


def time_zone(name: str) -> tzinfo:
    """Returns the time zone of this name. Raises ValueError for an unknown name."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone") from error


def month_period(name: str, where: tzinfo) -> Period:
    """Returns the month of a name like "2026-10". Raises ValueError if it is not a month."""
    found = _MONTH.fullmatch(name)
    if found is None or not 1 <= int(found[2]) <= 12 or not FIRST <= name <= LAST:
        raise ValueError(f"{name!r} is no month")
    year, number = int(found[1]), int(found[2])
    return Period(name, _midnight(date(year, number, 1), where), _midnight(_next(year, number), where))


def month_of(at: float, where: tzinfo) -> Period:
    """Returns the month that contains a moment (unix seconds)."""
    day = datetime.fromtimestamp(at, where)
    return month_period(f"{day.year:04d}-{day.month:02d}", where)


def last_week(at: float, where: tzinfo) -> Period:
    """Returns the last complete week, Monday to Sunday, with a name like "2026-W41"."""
    today = datetime.fromtimestamp(at, where).date()
    monday = today - timedelta(days=today.weekday())
    first = monday - timedelta(days=7)
    year, number, _ = first.isocalendar()
    return Period(f"{year:04d}-W{number:02d}", _midnight(first, where), _midnight(monday, where))


def previous_month(period: Period, where: tzinfo) -> Period | None:
    """Returns the month before, or None if the period is the first accepted month."""
    return None if period.name == FIRST else month_of(period.start - 1, where)


def parse_moment(text: str, where: tzinfo) -> int:
    """Returns unix seconds for "2026-10-03" (its first moment), "2026-10" (likewise), "2026-10-03T12:30" or unix
    seconds. Raises ValueError for any other text."""
    if text.isascii() and text.isdigit() and len(text) > 4:
        return int(text)
    if _MONTH.fullmatch(text):
        return month_period(text, where).start
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=where)).timestamp())


def days_after(at: float, count: int, where: tzinfo) -> int:
    """Returns the first moment of the day that is `count` days after the day of `at` (unix seconds)."""
    return _midnight(datetime.fromtimestamp(at, where).date() + timedelta(days=count), where)


def days(start: int, end: int, where: tzinfo) -> list[tuple[int, int]]:
    """Returns the time span divided at midnights in the zone `where`."""
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
