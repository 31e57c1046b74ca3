"""Periods of caps and budgets: day, week, month, quarter and year, in a time zone."""

from __future__ import annotations

from datetime import datetime, timedelta


def period_start(per: str, now: datetime) -> datetime:
    """Returns when the current period of a cap began: midnight, Monday, or the first day of the month, quarter or year,
    in the time zone of `now`. Raises ValueError for an unknown period."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match per:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)
    raise ValueError(f"not a period: {per!r}")


# days from the start of a period to a time within the next one
_WITHIN_NEXT_DAYS = {"day": 1.5, "week": 10, "month": 45, "quarter": 135, "year": 500}


def period_end(per: str, start: datetime) -> datetime:
    """Returns when the period that began at `start` ends, which is when the next one begins."""
    return period_start(per, start + timedelta(days=_WITHIN_NEXT_DAYS[per]))
