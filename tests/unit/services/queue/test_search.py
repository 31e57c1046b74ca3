"""Queue pages are filtered, sorted and stable while jobs change; incremental results equal full queries."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import fields, replace

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Refused
from headway.services.queue.query import QueueQuery
from headway.services.queue.queue_fields import BY_KEY, FIELDS, QueueField, sort_key
from headway.services.queue.search import (
    QueuePage,
    find_jobs,
    page_of_result,
    sort_key_of,
    sort_result,
    update_members,
    update_result,
)
from headway.services.read_model.snapshot_diff import MAX_CHANGES, JobsDiff
from tests.support.clusters import builders


def query_page(jobs: Iterable[JobState], query: QueueQuery, now: float) -> QueuePage:
    return page_of_result(find_jobs(jobs, query, now), query)


def numbers(jobs: Iterable[JobState]) -> list[int]:
    return [job.id for job in jobs]


QUEUE = (
    builders.job(1, nodes=("lab-1-1",), start_time=100),
    builders.job(2, "PENDING", priority=5, user="bob", account="speech", name="ASR large", reason="Resources"),
    builders.job(3, "PENDING", priority=9, partition="train,debug", reason="Priority"),
    builders.job(4, "COMPLETED", end_time=300, user="bob"),
    builders.job(5, nodes=("lab-1-2",), start_time=50, name="<b>bold</b>"),
)


def test_default_order_is_running_then_priority_with_counts() -> None:
    got = query_page(QUEUE, QueueQuery(), 1000)
    assert numbers(got.jobs) == [5, 1, 3, 2]
    assert (got.total, got.next, dict(got.counts)) == (4, "", {"running": 2, "waiting": 2, "ended": 1})
    ended = query_page(QUEUE, QueueQuery(kinds=frozenset({"ended"})), 1000)
    assert numbers(ended.jobs) == [4]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (QueueQuery(users=frozenset({"bob"})), [2]),
        (QueueQuery(accounts=frozenset({"speech", "vision"})), [2]),
        (QueueQuery(partitions=frozenset({"debug"})), [3]),
        (QueueQuery(states=frozenset({"RUNNING"})), [5, 1]),
        (QueueQuery(node="lab-1-2"), [5]),
        (QueueQuery(search="asr"), [2]),
        (QueueQuery(search="LAB-1-1"), [1]),
        (QueueQuery(search="priority"), [3]),
        (QueueQuery(search="<b>"), [5]),
        (QueueQuery(search="nothing of that"), []),
        (QueueQuery(sort="jobid"), [1, 2, 3, 5]),
        (QueueQuery(sort="-priority"), [3, 2, 5, 1]),
        (QueueQuery(sort="timeused"), [2, 3, 1, 5]),
    ],
)
def test_query_filters_searches_and_sorts(ask: QueueQuery, expected: list[int]) -> None:
    assert numbers(query_page(QUEUE, ask, 1000).jobs) == expected


@pytest.mark.parametrize("sort", ["", "jobid", "-priority", "name", "-username"])
def test_pages_stay_consistent_when_jobs_disappear(sort: str) -> None:
    queue = [builders.job(i, "PENDING", priority=i % 3, user=f"u{i % 4}") for i in range(1, 31)]
    whole = numbers(query_page(queue, QueueQuery(sort=sort), 0).jobs)
    first = query_page(queue, QueueQuery(sort=sort, limit=10), 0)
    gone = first.jobs[-1].id  # the very row the cursor stands on
    left = [job for job in queue if job.id != gone]
    second = query_page(left, QueueQuery(sort=sort, limit=10, cursor=first.next), 0)
    third = query_page(left, QueueQuery(sort=sort, limit=10, cursor=second.next), 0)
    assert numbers(first.jobs) + numbers(second.jobs) + numbers(third.jobs) == whole
    assert (second.before, third.next, third.total) == (9, "", 29)


@pytest.mark.parametrize("sort", ["timeused", "-timeused", "timeleft", "-timeleft", "pendingtime", "-pendingtime"])
def test_pages_sorted_by_elapsed_time_lose_and_repeat_no_jobs(sort: str) -> None:
    """Between two pages half a minute goes by: those that run overtake those that have ended."""
    states = ("RUNNING", "COMPLETED", "PENDING")
    queue = [
        builders.job(i, states[i % 3], submit_time=100, start_time=900 - 7 * i, end_time=950, time_limit_s=600)
        for i in range(1, 31)
    ]
    found, cursor, now = [], "", 1000
    while True:
        shown = query_page(queue, QueueQuery(sort=sort, limit=4, cursor=cursor), now)
        found += numbers(shown.jobs)
        cursor, now = shown.next, now + 30
        if not cursor:
            break
    assert found == numbers(query_page(queue, QueueQuery(sort=sort), 1000).jobs)


@pytest.mark.parametrize(
    "ask", [QueueQuery(sort="nonsense"), QueueQuery(cursor="x"), QueueQuery(cursor="W10"), QueueQuery(cursor="é")]
)
def test_refuses_unknown_sort_and_invalid_cursor(ask: QueueQuery) -> None:
    with pytest.raises(Refused):
        query_page(QUEUE, ask, 0)


def some(rng: random.Random, number: int) -> JobState:
    state = rng.choice(("RUNNING", "PENDING", "PENDING", "COMPLETED", "COMPLETING"))
    return builders.job(
        number, state, user=rng.choice(("ann", "bob")), priority=rng.randrange(4), start_time=rng.randrange(3)
    )


ASKS = (
    QueueQuery(),
    QueueQuery(kinds=frozenset({"ended"})),
    QueueQuery(users=frozenset({"bob"}), sort="-priority"),
    QueueQuery(search="ann", sort="username"),
    QueueQuery(states=frozenset({"PENDING"}), sort="jobid"),
    QueueQuery(sort="-name"),
)


@pytest.mark.parametrize("ask", ASKS)
def test_incremental_result_equals_full_query(ask: QueueQuery) -> None:
    """As if each reading were looked through anew."""
    rng = random.Random(7)
    jobs = {number: some(rng, number) for number in range(60)}
    found = find_jobs(jobs.values(), ask, 100)
    for reading in range(40):
        after = {number: job for number, job in jobs.items() if rng.random() > 0.1}
        for number in rng.sample(sorted(after), 5):
            after[number] = some(rng, number)
        for number in range(100 * (reading + 1), 100 * (reading + 1) + rng.randrange(8)):
            after[number] = some(rng, number)
        diff, whole = JobsDiff(found.of, after), find_jobs(after.values(), ask, 101 + reading)
        members = update_members(found, diff, ask, 101 + reading)
        assert members is not None
        keys = {job.id: sort_key_of(ask, 0)(job) for job in after.values()}
        assert sort_result(members, keys, ask) == whole
        carried = update_result(found, diff, ask, 101 + reading)
        assert carried is not None
        assert carried == whole
        found = carried


MANY = {number: builders.job(number, "PENDING", priority=number) for number in range(3 * MAX_CHANGES)}


@pytest.mark.parametrize(
    ("ask", "kept", "members"),
    [
        (QueueQuery(), False, True),
        (QueueQuery(users=frozenset({"alice"})), False, True),
        (QueueQuery(sort="-priority"), False, True),
        (QueueQuery(sort="jobid"), True, True),
        (QueueQuery(sort="name", users=frozenset({"alice"})), True, True),
        (QueueQuery(sort="reason", search="alice"), False, False),
    ],
)
def test_result_is_reused_unless_queried_fields_change(ask: QueueQuery, kept: bool, members: bool) -> None:
    """All priorities and reasons are others: those who ask for other things have their order still."""
    after = {number: replace(job, priority=number % 7, reason=f"R{number}") for number, job in MANY.items()}
    diff, found = JobsDiff(MANY, after), find_jobs(MANY.values(), ask, 0)
    carried = update_result(found, diff, ask, 0)
    assert (carried is not None, update_members(found, diff, ask, 0) is not None) == (kept, members)
    if carried is not None:
        assert carried == find_jobs(after.values(), ask, 0)
        assert query_page(after.values(), replace(ask, limit=1), 0).jobs[0] is after[carried.order[0]]


def test_result_is_not_reused_after_many_changes_or_for_elapsed_time() -> None:
    half = {number: job for number, job in MANY.items() if number % 2}
    for before, after in ((half, MANY), (MANY, half)):
        ask, diff = QueueQuery(sort="jobid"), JobsDiff(before, after)
        assert update_result(find_jobs(before.values(), ask, 0), diff, ask, 0) is None
        assert update_members(find_jobs(before.values(), ask, 0), diff, ask, 0) is None
    ask, diff = QueueQuery(sort="-timeused"), JobsDiff(MANY, MANY)
    assert update_result(find_jobs(MANY.values(), ask, 0), diff, ask, 0) is None


def another(value: object) -> object:
    """Of the same kind, and another."""
    if isinstance(value, str):
        return {"RUNNING": "PENDING", "PENDING": "RUNNING"}.get(value, f"{value}x")
    if isinstance(value, tuple):
        return ("b", "c")
    return {"nice": 9, "b": (1, 2)} if isinstance(value, dict) else int(str(value)) + 77


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETED"])
@pytest.mark.parametrize("queued", FIELDS, ids=lambda queued: queued.key)
def test_value_depends_only_on_declared_attributes(state: str, queued: QueueField) -> None:
    """What it does not name may change, and its value and place stay."""
    job = builders.job(7, state, nodes=("a",), priority=3, array_job_id=5, array_task="1", more={"nice": 1})
    for field in fields(JobState):
        if field.name == "id" or field.name in queued.reads:
            continue
        other = replace(job, **{field.name: another(getattr(job, field.name))})
        assert queued.of(job, 5000) == queued.of(other, 5000), field.name
        assert sort_key(queued, 5000)(job) == sort_key(queued, 5000)(other), field.name


def test_ten_thousand_jobs_are_queried_within_five_seconds() -> None:
    queue = [builders.job(i, "PENDING", priority=i % 97) for i in range(10_000)]
    began = time.process_time()
    got = query_page(queue, QueueQuery(sort="-submittime", search="train"), 0)
    assert (len(got.jobs), got.total) == (100, 10_000)
    assert time.process_time() - began < 5.0


def test_every_field_returns_declared_type_for_every_job() -> None:
    jobs = [*QUEUE, builders.job(9, "PENDING", time_limit_s=None, array_job_id=7, array_task="3-9%2")]
    for queued in FIELDS:
        for job in jobs:
            assert isinstance(queued.of(job, 1000.0), str if queued.kind == "text" else int), queued.key
    assert len(BY_KEY) == len(FIELDS)
    assert jobs[-1].label == "7_[3-9%2]"
