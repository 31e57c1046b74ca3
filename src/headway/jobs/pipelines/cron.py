"""Times of a schedule, as cron writes them: minute, hour, day of the month, month, day of the week, in UTC. Pure.

Source of the format: POSIX crontab(1), with steps (*/15) and names as Vixie cron has them."""

from __future__ import annotations

import calendar
import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_MOST_YEARS = 8  # between two 29ths of February


@dataclass(frozen=True)
class CronTimes:
    """The times of a schedule. If both `days` and `weekdays` are limited, a day needs to be in one of them."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    any_day: bool  # the day of the month is * or, as in Vixie cron, begins with it
    any_weekday: bool

    def next_after(self, at: float) -> float:
        """Returns the first time after `at` (both Unix seconds). Raises ValueError if there is none."""
        first = datetime.fromtimestamp(at, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = first
        while day.year <= first.year + _MOST_YEARS:
            if day.month not in self.months:
                day = (day.replace(day=1, hour=0, minute=0) + timedelta(days=31)).replace(day=1)
                continue
            if self._has_day(day):
                found = self._time_on(day)
                if found is not None:
                    return found.timestamp()
            day = (day + timedelta(days=1)).replace(hour=0, minute=0)
        raise ValueError("has no time: there is no such day")

    def _has_day(self, day: datetime) -> bool:
        in_month, in_week = (
            day.day in self.days,
            (calendar.weekday(day.year, day.month, day.day) + 1) % 7 in self.weekdays,
        )
        if self.any_day or self.any_weekday:
            return in_month and in_week
        return in_month or in_week

    def _time_on(self, day: datetime) -> datetime | None:
        """Returns the first time on this day that is not before `day`."""
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                if (hour, minute) >= (day.hour, day.minute):
                    return day.replace(hour=hour, minute=minute)
        return None


@functools.lru_cache(maxsize=1024)
def parse_cron(text: str) -> CronTimes:
    """Returns the times that a text such as `0 3 * * mon` names. Raises ValueError for any other text."""
    words = text.lower().split()
    if len(words) != len(_FIELDS):
        raise ValueError("must have five fields: minute, hour, day of the month, month, day of the week")
    sets = [_field(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
    weekdays = frozenset(day % 7 for day in sets[4])
    found = CronTimes(sets[0], sets[1], sets[2], sets[3], weekdays, words[2][0] == "*", words[4][0] == "*")
    found.next_after(0)
    return found


def _field(word: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        values, slash, step = part.partition("/")
        first, dash, last = values.partition("-")
        begin = low if values == "*" else _number(first, name)
        end = high if values == "*" or (slash and not dash) else _number(last, name) if dash else begin
        every = int(step) if step.isdecimal() and step.isascii() and len(step) <= 2 else 0 if slash else 1
        if not (low <= begin <= end <= high) or every < 1:
            raise ValueError(f"{word} is no {name}: {low} to {high}, such as *, 5, 1-5, 1,15 or */2")
        found.update(range(begin, end + 1, every))
    return frozenset(found)


def _number(text: str, name: str) -> int:
    names = _MONTHS if name == "month" else _DAYS if name == "day of the week" else ()
    if text in names:
        return names.index(text) + (name == "month")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 2 else -1
