"""A job's page: what stands under one time comes anew together, and how often that asks the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headway.api.live import Snapshot
from headway.api.state import HISTORY_S
from headway.domain.live import JobState
from headway.web.job_view import Gpus, gpus, timeline
from headway.wire.jobs import JobRunOut, JobRunsOut
from tests import builders
from tests.unit.server_fakes import Server

ASKED = "series=gpu_utilisation&series=gpu_memory&series=gpu_power&series=gpu_temperature"


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster."""
    await server.apply()
    return server


def runs(*starts: int) -> JobRunsOut:
    return JobRunsOut(
        runs=[JobRunOut(state="RUNNING", submit_time=1, start_time=at, end_time=0, nodelist="") for at in starts]
    )


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED"])
def test_a_job_that_waits_has_no_charts_though_slurm_expects_it_to_start(state: str) -> None:
    job = builders.job(7, state, gpus=8, start_time=5000)
    assert gpus("lab", job, runs(), simulated=True) is None
    assert gpus("lab", replace(job, state="RUNNING", gpus=0), runs(5000), simulated=True) is None


def test_the_charts_of_a_job_mark_each_further_run() -> None:
    job = builders.job(7, "RUNNING", gpus=8, start_time=5000)
    address = f"/api/v1/clusters/lab/metrics?job=7&{ASKED}"
    assert gpus("lab", job, runs(5000), simulated=True) == Gpus(address, True, ())
    assert gpus("lab", job, runs(3000, 5000), simulated=False) == Gpus(address, False, ((5000, "run 2"),))


def test_a_job_that_was_preempted_for_good_has_not_gone_back_to_the_queue() -> None:
    """As with --no-requeue; the runs before another one have."""
    ended = builders.job(7, "PREEMPTED", start_time=300, end_time=500)
    first, last = (
        JobRunOut(state="PREEMPTED", submit_time=1, start_time=at, end_time=at + 200, nodelist="lab-1-1")
        for at in (50, 300)
    )
    steps = timeline("lab", ended, JobRunsOut(runs=[first, last])).steps
    assert [(step.at, step.kind, step.title, step.text) for step in steps if step.at in (250, 500)] == [
        (250, "warn", "Went back to the queue", "preempted"), (500, "bad", "Preempted", ""),
    ]  # fmt: skip
    waits = timeline("lab", replace(ended, state="PENDING"), JobRunsOut(runs=[first, last])).steps
    assert (waits[-1].title, "Preempted" in [step.title for step in waits]) == ("Waits to start again", False)


def _tasks(*states: str) -> tuple[JobState, ...]:
    made = [builders.job(40 + i, state, start_time=900) for i, state in enumerate(states)]
    return tuple(replace(job, array_job_id=40, array_task=str(i)) for i, job in enumerate(made))


async def test_an_array_is_asked_for_once_for_all_who_look_and_again_when_a_task_did_something(server: Server) -> None:
    state, cluster = server.state, await server.state.known("lab")
    server.work.answers["array"] = {"0": "RUNNING", "1": "PENDING"}
    state.live.put(Snapshot("lab", jobs=_tasks("RUNNING", "PENDING"), as_of=1000.0))
    answers = await asyncio.gather(*(state.array(cluster, 40) for _ in range(3)))
    assert answers == [{"0": "RUNNING", "1": "PENDING"}] * 3
    assert len(server.work.named("array")) == 1
    state.clock.now += 10 * HISTORY_S  # type: ignore[attr-defined]
    await state.array(cluster, 40)
    assert len(server.work.named("array")) == 1, "no task did anything"
    server.work.answers["array"] = {"0": "COMPLETED", "1": "RUNNING"}
    state.live.put(Snapshot("lab", jobs=_tasks("COMPLETED", "RUNNING"), as_of=1000.0))
    assert await state.array(cluster, 40) == {"0": "COMPLETED", "1": "RUNNING"}
    state.live.put(Snapshot("lab", jobs=_tasks("COMPLETED", "FAILED"), as_of=1000.0))
    assert await state.array(cluster, 40) == {"0": "COMPLETED", "1": "RUNNING"}, "not at every step of a busy array"
    assert len(server.work.named("array")) == 2
    server.work.answers["array"] = {"0": "COMPLETED", "1": "FAILED"}
    state.clock.now += HISTORY_S  # type: ignore[attr-defined]
    assert await state.array(cluster, 40) == {"0": "COMPLETED", "1": "FAILED"}
