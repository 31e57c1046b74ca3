"""Periods of caps begin and end at midnight in the cluster's time zone, also when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from headway.domain.billing.cap_periods import period_end, period_start


@pytest.mark.parametrize(
    ("per", "start"),
    [
        ("day", (2026, 5, 14)),
        ("week", (2026, 5, 11)),
        ("month", (2026, 5, 1)),
        ("quarter", (2026, 4, 1)),
        ("year", (2026, 1, 1)),
    ],
)
def test_period_end_is_the_start_of_the_next_period(per: str, start: tuple[int, int, int]) -> None:
    begun = datetime(*start, tzinfo=ZoneInfo("Europe/Berlin"))
    for _ in range(9):
        end = period_end(per, begun)
        assert period_start(per, end) == end
        assert period_start(per, end - timedelta(seconds=1)) == begun
        begun = end


@pytest.mark.parametrize(
    ("per", "start"),
    [
        ("day", (2026, 5, 14)),
        ("week", (2026, 5, 11)),
        ("month", (2026, 5, 1)),
        ("quarter", (2026, 4, 1)),
        ("year", (2026, 1, 1)),
    ],
)
def test_period_start_returns_the_first_moment_of_the_period(per: str, start: tuple[int, int, int]) -> None:
    assert period_start(per, datetime(2026, 5, 14, 17, 30, tzinfo=UTC)) == datetime(*start, tzinfo=UTC)
