"""The number of replicas follows the requests, the times of answers and the hour, and each change has its reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headway.domain.serving.service_figures import ServiceFigures, bucket_of
from headway.errors import InvalidSpec
from headway.jobs.serving.scaling import (
    Limits,
    has_settled,
    is_open,
    limits_now,
    spare_replicas,
    wanted_replicas,
)
from headway.jobs.serving.service_file import Replicas, ScheduledReplicas, read_service
from headway.store import ReplicaRow


def wanted(replicas: Replicas, now_wanted: int, active: int, low_since: float | None, now: float, **more: Any) -> int:
    limits = Limits(replicas.min, replicas.max)
    return wanted_replicas(replicas, limits, now_wanted, active, low_since, now, **more).number


def answers(count: int, seconds: float) -> ServiceFigures:
    return ServiceFigures(count, total={bucket_of(seconds): count})


def replica(number: int, state: str = "serving", **fields: Any) -> ReplicaRow:
    return ReplicaRow("v-1", "lab", number, 1, 17000, 0.0, state=state, **{"since": 0.0, **fields})


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_number_follows_requests_up_at_once_and_down_after_a_while() -> None:
    file = Replicas(min=1, max=4, requests=8, idle_s=300)
    assert wanted(file, 1, 0, None, 0.0) == 1
    assert wanted(file, 1, 17, None, 0.0) == 3
    assert wanted(file, 1, 1000, None, 0.0) == 4
    assert wanted(file, 4, 9, 0.0, 299.0) == 4
    assert wanted(file, 4, 9, 0.0, 300.0) == 2
    assert wanted(Replicas(min=0, max=1), 0, 0, None, 0.0) == 0
    assert wanted(Replicas(min=0, max=1), 0, 1, None, 0.0) == 1


@pytest.mark.parametrize(
    ("now_wanted", "active", "figures", "settled", "number", "why"),
    [
        (2, 0, None, True, 2, ""),
        (2, 0, answers(19, 9.0), True, 2, ""),  # too few to conclude from
        (2, 0, answers(20, 9.0), True, 3, "the target is 2,000 ms"),
        (2, 0, answers(20, 9.0), False, 2, ""),  # the last change does not show in the times yet
        (4, 0, answers(20, 9.0), True, 4, ""),  # at the largest number
        (2, 33, answers(20, 9.0), True, 4, "33 requests run or wait, 10 for each replica"),
        (2, 0, answers(20, 1.5), True, 2, ""),
    ],
)
def test_number_follows_the_times_of_answers(
    now_wanted: int, active: int, figures: ServiceFigures | None, settled: bool, number: int, why: str
) -> None:
    file = Replicas(min=1, max=4, requests=10, p95_ms=2000)
    found = wanted_replicas(file, Limits(1, 4), now_wanted, active, None, 0.0, figures=figures, settled=settled)
    assert found.number == number
    assert why in found.why
    assert bool(found.why) == bool(why)


@pytest.mark.parametrize(("seconds", "number"), [(0.5, 3), (1.5, 4), (9.0, 4)])
def test_one_fewer_follows_when_answers_have_been_fast_for_a_while(seconds: float, number: int) -> None:
    file = Replicas(min=1, max=4, p95_ms=2000, idle_s=60)
    found = wanted_replicas(file, Limits(1, 4), 4, 0, 0.0, 61.0, figures=answers(50, seconds), settled=False)
    assert found.number == number


def test_low_time_begins_and_ends() -> None:
    file = Replicas(min=1, max=4, idle_s=60)
    assert wanted_replicas(file, Limits(1, 4), 2, 0, None, 10.0).low_since == 10.0
    assert wanted_replicas(file, Limits(1, 4), 2, 0, 10.0, 69.0).low_since == 10.0
    ended = wanted_replicas(file, Limits(1, 4), 2, 0, 10.0, 70.0)
    assert (ended.number, ended.why, ended.low_since) == (1, "fewer have sufficed for 60 s", None)
    assert wanted_replicas(file, Limits(1, 4), 2, 9, 10.0, 69.0).low_since is None


DAY = ScheduledReplicas(cron="0 8 * * mon-fri", hours=10, min=3, max=6)
EVENT = ScheduledReplicas(cron="30 9 24 12 *", hours=2, min=8)


@pytest.mark.parametrize(
    ("now", "limits"),
    [
        ("2026-11-30T07:59:59", (1, 4)),  # a Monday
        ("2026-11-30T08:00:00", (3, 6)),
        ("2026-11-30T17:59:59", (3, 6)),
        ("2026-11-30T18:00:00", (1, 4)),
        ("2026-11-29T12:00:00", (1, 4)),  # a Sunday
        ("2026-12-24T10:00:00", (8, 8)),  # a Thursday: the last window that is open counts
    ],
)
def test_windows_replace_the_limits(now: str, limits: tuple[int, int]) -> None:
    file = Replicas(min=1, max=4, schedule=[DAY, EVENT])
    found = limits_now(file, 1, 4, at(now))
    assert (found.min, found.max) == limits
    assert bool(found.why) == (limits != (1, 4))


def test_window_over_midnight_is_open_on_the_next_day() -> None:
    night = ScheduledReplicas(cron="0 22 * * *", hours=8, min=2)
    assert is_open(night, at("2026-11-30T05:59:59"))
    assert not is_open(night, at("2026-11-30T06:00:00"))


def test_window_opens_and_closes_with_its_reason() -> None:
    file = Replicas(min=1, max=4, schedule=[DAY])
    opened = wanted_replicas(file, limits_now(file, 1, 4, at("2026-11-30T08:00:00")), 1, 0, None, 0.0)
    assert (opened.number, opened.why) == (3, "the window 0 8 * * mon-fri of 10 hours is open")
    small = ScheduledReplicas(cron="0 22 * * *", hours=8, max=1)
    file = Replicas(min=1, max=4, schedule=[small])
    closed = wanted_replicas(file, limits_now(file, 1, 4, at("2026-11-30T23:00:00")), 4, 0, None, 0.0)
    assert (closed.number, closed.why) == (1, "the window 0 22 * * * of 8 hours is open")


def test_number_that_a_person_has_set_counts_before_the_schedule() -> None:
    file = Replicas(min=1, max=4, schedule=[DAY])
    assert limits_now(file, 2, 2, at("2026-11-30T08:00:00")) == Limits(2, 2)


@pytest.mark.parametrize(
    "window",
    [
        {"cron": "nonsense", "hours": 1, "min": 1},
        {"cron": "0 8 * * *", "hours": 0, "min": 1},
        {"cron": "0 8 * * *", "hours": 1},
        {"cron": "0 8 * * *", "hours": 1, "min": 3, "max": 2},
    ],
)
def test_faulty_windows_are_refused(window: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        read_service({"name": "chat", "run": "serve", "replicas": {"schedule": [window]}})


def test_number_has_settled_when_all_have_been_healthy_for_a_while() -> None:
    assert has_settled([replica(1, since=0.0)], 120.0), "times are those of up to two minutes"
    assert not has_settled([replica(1, since=1.0)], 120.0)
    assert not has_settled([replica(1, since=0.0), replica(2, "pending")], 120.0)
    assert has_settled([replica(1, since=0.0), replica(2, "ended", ended_at=1.0)], 120.0)


def test_healthy_replicas_beyond_the_wanted_ones_are_spare() -> None:
    some = [replica(1), replica(2, "unhealthy"), replica(3), replica(4, "starting"), replica(5)]
    assert spare_replicas(some, 2, 1, 1) == {5}
    assert spare_replicas(some, 3, 1, 1) == frozenset()
    assert spare_replicas(some, 1, 0, 1) == frozenset(), "no standby is asked for"
    assert spare_replicas(some, 1, 1, 2) == frozenset(), "of another version"
