"""Times of schedules are those of cron."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headway.jobs.pipelines.cron import parse_cron


def next_time(text: str, after: str) -> str:
    at = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp()
    return datetime.fromtimestamp(parse_cron(text).next_after(at), UTC).strftime("%a %Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("* * * * *", "2026-11-29 18:20:30", "Sun 2026-11-29 18:21"),
        ("* * * * *", "2026-12-31 23:59", "Fri 2027-01-01 00:00"),
        ("0 3 * * *", "2026-11-29 03:00", "Mon 2026-11-30 03:00"),
        ("0 3 * * *", "2026-11-29 02:59", "Sun 2026-11-29 03:00"),
        ("*/15 8-17 * * mon-fri", "2026-11-27 17:50", "Mon 2026-11-30 08:00"),
        ("*/15 8-17 * * 1-5", "2026-11-30 08:01", "Mon 2026-11-30 08:15"),
        ("30 4 1,15 * fri", "2026-11-29 00:00", "Tue 2026-12-01 04:30"),  # the 1st or a Friday
        ("30 4 1,15 * fri", "2026-12-01 05:00", "Fri 2026-12-04 04:30"),
        ("0 0 */2 * mon", "2026-11-29 00:00", "Mon 2026-12-07 00:00"),  # a Monday that is an odd day
        ("0 0 29 2 *", "2026-01-01 00:00", "Tue 2028-02-29 00:00"),
        ("0 0 * jan,jul 7", "2026-11-29 00:00", "Sun 2027-01-03 00:00"),
        ("5/20 0 * * *", "2026-11-29 00:06", "Sun 2026-11-29 00:25"),
        ("0-10/5 6,18 * * 0", "2026-11-29 06:10", "Sun 2026-11-29 18:00"),
    ],
)
def test_next_time(text: str, after: str, expected: str) -> None:
    assert next_time(text, after) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 3 * *", "must have five fields"),
        ("60 3 * * *", "60 is no minute: 0 to 59"),
        ("0 3 0 * *", "0 is no day of the month: 1 to 31"),
        ("0 3 * 13 *", "13 is no month"),
        ("0 3 * * 8", "8 is no day of the week"),
        ("*/0 3 * * *", "is no minute"),
        ("5-1 3 * * *", "is no minute"),
        ("x 3 * * *", "is no minute"),
        ("-5 3 * * *", "is no minute"),
        ("1- 3 * * *", "is no minute"),
        ("² 3 * * *", "is no minute"),
        ("0 3 * * feb", "is no day of the week"),
        ("0 0 30 2 *", "there is no such day"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_cron(text)


def test_rare_days_are_found_month_by_month(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    times = parse_cron("0 0 29 2 *")
    of_day = type(times)._has_day
    monkeypatch.setattr(type(times), "_has_day", lambda self, day: looked.append(day) or of_day(self, day))
    begin = datetime(2096, 3, 1, tzinfo=UTC).timestamp()
    assert datetime.fromtimestamp(times.next_after(begin), UTC).date().isoformat() == "2104-02-29"
    assert len(looked) < 300, "days of other months are left out"
    assert parse_cron("0 0 29 2 *") is times
