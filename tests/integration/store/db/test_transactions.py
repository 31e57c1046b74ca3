"""SQLite and PostgreSQL keep every statement that they have prepared, one of 500 parameters in 100 KiB for each connection: its
text must not depend on how many values it looks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from headway.billing.run_resources import allocations_by_group
from headway.domain.billing.ledger import CheckpointStats, JobRun
from headway.store import Store
from headway.store.billing.run_sums import ReportSpan
from headway.store.billing.usage import Behind
from tests.support.clusters import builders

LAB = builders.cluster(4)
T0 = 1_790_000_000


def run(job: int) -> JobRun:
    return JobRun(
        job=job, start=T0 + job, end=T0 + job + 30, submit=T0, eligible=T0, team="vision", user="alice", partition="train",
        qos="vision", state="FAILED", nodes=("lab-1-1",), gpus=4, cpus=32, memory_mib=1000, time_limit_s=3600, used_cpu_s=5,
        used_memory_mib=10,
    )  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await builders.store(tmp_path, builders.Clock())
    yield opened
    await opened.close()


async def save_runs(store: Store, jobs: list[int]) -> None:
    await store.runs.save("lab", [(one, allocations_by_group(one, LAB.group_of), 0) for one in map(run, jobs)])


async def add_measurements(store: Store, jobs: list[int]) -> None:
    await store.runs.add_measurements("lab", [(job, T0 + 60, 60, 10, 100) for job in jobs], T0 + 60)


async def end_runs(store: Store, jobs: list[int]) -> None:
    await store.runs.end("lab", [(job, T0 + job) for job in jobs], T0 + 99)


async def runs_behind(store: Store, jobs: list[int]) -> None:
    behind = Behind(lost=True, runs=tuple((job, T0 + job) for job in jobs), but=((1, T0),))
    await store.usage.runs("lab", ReportSpan(T0, T0 + 3600, T0 + 3600), behind=behind)


CALLS: dict[str, Callable[[Store, list[int]], Awaitable[Any]]] = {
    "save runs": save_runs,
    "add measurements": add_measurements,
    "end runs": end_runs,
    "runs behind a figure": runs_behind,
    "runs of jobs": lambda store, jobs: store.usage.runs_of_jobs("lab", jobs),
    "checkpoints": lambda store, jobs: store.checkpoints.of_jobs("lab", jobs),
    "record checkpoints": lambda store, jobs: store.checkpoints.record(
        "lab", {job: CheckpointStats(3, 1.0, 9.0) for job in jobs}, T0
    ),
    "records of jobs": lambda store, jobs: store.jobs.latest("lab", jobs),
    "stopped trials": lambda store, jobs: store.sweeps.stopped_trials("lab", jobs),
    "requeues of jobs": lambda store, jobs: store.incidents.requeue_counts("lab", jobs),
    "incidents": lambda store, jobs: store.incidents.open_and_recent("lab", also=jobs),
}


@pytest.mark.parametrize("name", CALLS)
async def test_statement_is_the_same_for_any_number_of_jobs(store: Store, name: str) -> None:
    await save_runs(store, list(range(1, 60)))
    texts: list[set[str]] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        texts[-1].add(statement)

    event.listen(store.database.engine.sync_engine, "before_cursor_execute", note)
    for count in (3, 4, 50):
        texts.append(set())
        await CALLS[name](store, list(range(1, count + 1)))
    assert texts[0]
    assert texts[0] == texts[1] == texts[2]
