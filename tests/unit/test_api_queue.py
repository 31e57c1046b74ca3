"""One page of the queue: what is asked for, in order, page after page while the queue changes."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from headway.api.queue import MOST_NEWS, QueueAsk, carries_on, carry_on, find, page, turnover
from headway.domain.live import JobState
from headway.errors import Refused
from headway.jobs.columns import BY_KEY, COLUMNS, USUAL, label
from tests import builders


def numbers(jobs: tuple[JobState, ...]) -> list[int]:
    return [job.id for job in jobs]


QUEUE = (
    builders.job(1, nodes=("lab-1-1",), start_time=100),
    builders.job(2, "PENDING", priority=5, user="bob", account="speech", name="ASR large", reason="Resources"),
    builders.job(3, "PENDING", priority=9, partition="train,debug", reason="Priority"),
    builders.job(4, "COMPLETED", end_time=300, user="bob"),
    builders.job(5, nodes=("lab-1-2",), start_time=50, name="<b>bold</b>"),
)


def test_running_first_then_by_priority_and_every_kind_is_counted() -> None:
    got = page(QUEUE, QueueAsk(), 1000)
    assert numbers(got.jobs) == [5, 1, 3, 2]
    assert (got.total, got.next, dict(got.counts)) == (4, "", {"running": 2, "waiting": 2, "ended": 1})
    ended = page(QUEUE, QueueAsk(kinds=frozenset({"ended"})), 1000)
    assert numbers(ended.jobs) == [4]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (QueueAsk(users=frozenset({"bob"})), [2]),
        (QueueAsk(accounts=frozenset({"speech", "vision"})), [2]),
        (QueueAsk(partitions=frozenset({"debug"})), [3]),
        (QueueAsk(states=frozenset({"RUNNING"})), [5, 1]),
        (QueueAsk(node="lab-1-2"), [5]),
        (QueueAsk(search="asr"), [2]),
        (QueueAsk(search="LAB-1-1"), [1]),
        (QueueAsk(search="priority"), [3]),
        (QueueAsk(search="<b>"), [5]),
        (QueueAsk(search="nothing of that"), []),
        (QueueAsk(sort="jobid"), [1, 2, 3, 5]),
        (QueueAsk(sort="-priority"), [3, 2, 5, 1]),
        (QueueAsk(sort="timeused"), [2, 3, 1, 5]),
    ],
)
def test_filters_search_and_order(ask: QueueAsk, expected: list[int]) -> None:
    assert numbers(page(QUEUE, ask, 1000).jobs) == expected


@pytest.mark.parametrize("sort", ["", "jobid", "-priority", "name", "-username"])
def test_pages_follow_each_other_though_jobs_come_and_go(sort: str) -> None:
    queue = [builders.job(i, "PENDING", priority=i % 3, user=f"u{i % 4}") for i in range(1, 31)]
    whole = numbers(page(queue, QueueAsk(sort=sort), 0).jobs)
    first = page(queue, QueueAsk(sort=sort, limit=10), 0)
    gone = first.jobs[-1].id  # the very row the cursor stands on
    left = [job for job in queue if job.id != gone]
    second = page(left, QueueAsk(sort=sort, limit=10, cursor=first.next), 0)
    third = page(left, QueueAsk(sort=sort, limit=10, cursor=second.next), 0)
    assert numbers(first.jobs) + numbers(second.jobs) + numbers(third.jobs) == whole
    assert (second.before, third.next, third.total) == (9, "", 29)


@pytest.mark.parametrize(
    "ask", [QueueAsk(sort="nonsense"), QueueAsk(cursor="x"), QueueAsk(cursor="W10"), QueueAsk(cursor="é")]
)
def test_what_there_is_not_is_refused(ask: QueueAsk) -> None:
    with pytest.raises(Refused):
        page(QUEUE, ask, 0)


def some(rng: random.Random, number: int) -> JobState:
    state = rng.choice(("RUNNING", "PENDING", "PENDING", "COMPLETED", "COMPLETING"))
    return builders.job(
        number, state, user=rng.choice(("ann", "bob")), priority=rng.randrange(4), start_time=rng.randrange(3)
    )


@pytest.mark.parametrize(
    "ask",
    [
        QueueAsk(),
        QueueAsk(kinds=frozenset({"ended"})),
        QueueAsk(users=frozenset({"bob"}), sort="-priority"),
        QueueAsk(search="ann", sort="username"),
        QueueAsk(states=frozenset({"PENDING"}), sort="jobid"),
        QueueAsk(sort="-name"),
    ],
)
def test_what_was_found_once_is_carried_on_from_reading_to_reading(ask: QueueAsk) -> None:
    """As if each reading were looked through anew."""
    rng = random.Random(7)
    jobs = {number: some(rng, number) for number in range(60)}
    found = replace(find(jobs.values(), ask, 100), of=jobs)
    for reading in range(40):
        after = {number: job for number, job in jobs.items() if rng.random() > 0.1}
        for number in rng.sample(sorted(after), 5):
            after[number] = some(rng, number)
        for number in range(100 * (reading + 1), 100 * (reading + 1) + rng.randrange(8)):
            after[number] = some(rng, number)
        found = carry_on(found, after, turnover(jobs, after), ask, 101 + reading)
        whole = find(after.values(), ask, 101 + reading)
        assert numbers(tuple(found.jobs)) == numbers(tuple(whole.jobs))
        assert (found.counts, found.of) == (whole.counts, after)
        jobs = after


def test_many_news_at_once_and_what_runs_on_are_not_carried_on() -> None:
    before = {number: builders.job(number, "PENDING") for number in range(3 * MOST_NEWS)}
    after = {number: builders.job(number, priority=number % 7) for number in before}
    assert not carries_on(turnover(before, after), QueueAsk())
    assert carries_on(turnover(before, before), QueueAsk(sort="-priority"))
    assert not carries_on(turnover(before, before), QueueAsk(sort="-timeused"))


def test_ten_thousand_jobs_take_no_time() -> None:
    queue = [builders.job(i, "PENDING", priority=i % 97) for i in range(10_000)]
    began = time.process_time()
    got = page(queue, QueueAsk(sort="-submittime", search="train"), 0)
    assert (len(got.jobs), got.total) == (100, 10_000)
    assert time.process_time() - began < 1.0


def test_every_column_gives_a_value_of_its_kind_for_every_job() -> None:
    jobs = [*QUEUE, builders.job(9, "PENDING", time_limit_s=None, array_job_id=7, array_task="3-9%2")]
    for column in COLUMNS:
        for job in jobs:
            assert isinstance(column.of(job, 1000.0), str if column.kind == "text" else int), column.key
    assert set(USUAL) <= set(BY_KEY)
    assert len(BY_KEY) == len(COLUMNS)
    assert label(jobs[-1]) == "7_[3-9%2]"
