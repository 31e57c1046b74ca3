"""Pages of the job list come from the present order, also while the queue changes and is sorted again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from headway.domain.slurm.job_states import JOB_KINDS
from headway.services.queue.order_cache import find_page
from headway.services.queue.query import QueueQuery
from headway.services.queue.search import find_jobs, page_of_result
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.snapshot import UNUSED_ORDER_S, Snapshot
from headway.services.read_model.snapshot_diff import BATCH
from tests.support.clusters import builders
from tests.support.waiting import eventually


async def test_queue_page_never_uses_an_outdated_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a long queue is sorted again, requests get the previous order; if that is old, they wait."""
    clock = builders.Clock()
    live = LiveState(clock)

    def read(state: str, at: float) -> Snapshot:
        before = live.snapshot("lab")
        jobs = tuple(builders.job(number, state) for number in range(1, 2 * BATCH))
        live.store_snapshot(Snapshot("lab", jobs=jobs, as_of=at, job_orders=before.pop_recent_orders(at)))
        return live.snapshot("lab")

    async def shown(snapshot: Snapshot, now: float) -> tuple[str, float | None]:
        page = await find_page(snapshot, QueueQuery(limit=1), None, now, patience_s=0.0)
        return page.page.jobs[0].state, page.snapshot.as_of

    monkeypatch.setattr("headway.services.read_model.snapshot_diff.MAX_CHANGES", 10)
    assert await shown(read("PENDING", 1000.0), 1000.0) == ("PENDING", 1000.0)
    assert await shown(read("RUNNING", 1002.0), 1002.0) == ("PENDING", 1000.0), "a moment ago"
    await eventually(lambda: live.snapshot("lab").job_orders[QueueQuery(limit=0)][1].as_of == 1002.0)
    assert await shown(live.snapshot("lab"), 1002.0) == ("RUNNING", 1002.0)
    assert await shown(read("COMPLETING", 1030.0), 1030.0) == ("COMPLETING", 1030.0), "not that of half a minute ago"
    assert live.snapshot("lab").pop_recent_orders(1030.0 + UNUSED_ORDER_S) == {}


async def test_queue_pages_stay_correct_when_all_priorities_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.services.read_model.snapshot_diff.MAX_CHANGES", 20)
    rng, live = random.Random(5), LiveState(builders.Clock())
    asks = [
        QueueQuery(limit=7), QueueQuery(users=frozenset({"u1"})), QueueQuery(sort="-priority"), QueueQuery(sort="name", limit=9),
        QueueQuery(sort="jobid", kinds=frozenset(JOB_KINDS)), QueueQuery(search="r1", sort="reason"),
        QueueQuery(sort="-timeused"),
    ]  # fmt: skip
    jobs = {
        number: builders.job(
            number,
            "PENDING" if number > 30 else "RUNNING",
            user=f"u{number % 3}",
            name=f"n{number % 5}",
            start_time=number,
        )
        for number in range(1, 3 * BATCH)
    }
    for turn in range(1, 5):
        live.store_snapshot(
            Snapshot(
                "lab",
                jobs=tuple(jobs.values()),
                as_of=float(turn),
                job_orders=live.snapshot("lab").pop_recent_orders(turn),
            )
        )
        got = await asyncio.gather(*(find_page(live.snapshot("lab"), ask, None, 1000.0 + turn) for ask in asks))
        for ask, one in zip(asks, got, strict=True):
            assert one.snapshot is live.snapshot("lab")
            assert one.page == page_of_result(find_jobs(jobs.values(), ask, 1000.0 + turn), ask), ask
        jobs = {number: replace(job, priority=rng.randrange(99), reason=f"r{turn % 3}") for number, job in jobs.items()}
        del jobs[40 + turn]
        jobs[50] = replace(jobs[50], state="RUNNING", start_time=7)
        jobs[2000 + turn] = builders.job(2000 + turn, user="u1")
