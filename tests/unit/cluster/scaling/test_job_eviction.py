"""When a node leaves, its jobs are warned, then requeued or cancelled; completing and already requeued jobs are left
alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from headway.cluster.context import ClusterContext
from headway.cluster.scaling.job_eviction import COMMANDS_AT_ONCE, JobEviction
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeSlurm

LAB = builders.cluster(3, 0)
HEAD = builders.machine(LAB.head)
NODE = "lab-1-1"


class Controller(FakeSlurm):
    """Jobs in Slurm's words, all on one node."""

    def __init__(self, **words: str) -> None:
        self.words = {int(name.removeprefix("job")): word for name, word in words.items()}
        super().__init__(LAB.slot_names)
        self.jobs = {NODE: set(self.words)}
        self.job_states = self.words
        self.said: list[str] = []
        self.now = 1000.0
        self.asked: list[int] = []  # for their scripts
        self.asking = self.most = 0  # at once
        self.ends_at = 1010.0  # until then a job that ends is completing

    async def query(self, argv: list[str]) -> str | None:
        if "write" in argv:
            self.asked.append(int(argv[-2]))
            self.asking += 1
            self.most = max(self.most, self.asking)
            await asyncio.sleep(0)
            self.asking -= 1
        return await super().query(argv)

    def orders(self) -> list[str]:
        return [line.removeprefix("scontrol ") for line in self.did]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.ends_at:
            for job in [job for job, word in self.words.items() if word == "COMPLETING"]:
                del self.words[job]
                self.jobs[NODE].discard(job)

    async def report(self, step: str, text: str, **_: Any) -> None:
        self.said.append(f"{step}: {text}")

    def away(self) -> JobEviction:
        context = ClusterContext(cast(Any, None), cast(Any, None), cast(Any, self), Path("/nowhere"))
        return JobEviction(LAB, context, self.report, HEAD, "its node is removed", lambda: self.now, self.sleep)


async def test_completing_job_is_waited_for_and_not_requeued() -> None:
    slurm = Controller(job7="COMPLETING", job8="RUNNING", job9="SUSPENDED")
    await slurm.away().evict_jobs({NODE: (7, 8, 9)})
    assert slurm.orders() == ["requeue 8", "requeue 9"]
    assert slurm.now == slurm.ends_at


async def test_already_requeued_job_is_left_alone() -> None:
    slurm = Controller(job7="PENDING")
    await slurm.away().evict_jobs({NODE: (7,)})
    assert slurm.did == []
    assert slurm.now == 1000.0


@pytest.mark.parametrize(
    "error", ["Requested operation is presently disabled", "Only batch jobs are accepted or processed"]
)
async def test_job_that_cannot_be_requeued_is_cancelled(error: str) -> None:
    slurm = Controller(job7="RUNNING")
    slurm.errors["requeue"] = [f"{error} for job 7"]
    assert await slurm.away().evict_jobs({NODE: (7,)}) == frozenset()
    assert slurm.orders() == ["requeue 7", "scancel 7"]
    assert "can't be requeued" in slurm.said[0]


@pytest.mark.parametrize(
    "error",
    [
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Job can not be altered now, try again later",
    ],
)
async def test_node_stays_while_the_requeue_of_its_job_fails(error: str) -> None:
    slurm = Controller(job7="RUNNING", job8="COMPLETING")
    slurm.errors["requeue"], away = [error, error], slurm.away()
    for _ in range(2):
        assert await away.evict_jobs({NODE: (7,), "lab-1-2": (8,)}) == {NODE}
    assert slurm.orders() == ["requeue 7"] * 2
    assert len(slurm.said) == 1
    assert await away.evict_jobs({NODE: (7,)}) == frozenset()
    assert slurm.words[7] == "PENDING"


async def test_job_of_unknown_state_is_not_requeued_and_keeps_its_node() -> None:
    slurm = Controller(job7="RUNNING")
    assert await slurm.away().evict_jobs({NODE: (7, 99)}) == {NODE}
    assert slurm.orders() == ["requeue 7"]


async def test_signal_options_of_jobs_are_read_once() -> None:
    slurm = Controller(**{f"job{number}": "RUNNING" for number in range(1, 41)})
    slurm.scripts[7] = "#!/bin/sh\n#SBATCH --signal=USR1@600\n"
    away, jobs, ends = slurm.away(), tuple(range(1, 41)), slurm.now + 3600
    for _ in range(60):
        await away.warn_jobs({NODE: jobs}, ends)
        slurm.now += 1
    assert sorted(slurm.asked) == list(jobs)
    assert 1 < slurm.most <= COMMANDS_AT_ONCE
    await away.warn_jobs({NODE: (*jobs, 41)}, ends)
    assert slurm.asked[40:] == [41]
    assert slurm.did == []
    slurm.now = ends - 600
    for _ in range(2):
        await away.warn_jobs({NODE: jobs}, ends)
    assert [" ".join(line.split()[:3]) for line in slurm.did] == ["scontrol notify 7", "scancel --signal=USR1 7"]


async def test_incomplete_signal_options_are_read_again_later() -> None:
    slurm = Controller(job7="RUNNING")
    slurm.submit_line, away = "", slurm.away()
    for _ in range(121):
        await away.warn_jobs({NODE: (7,)}, 9000.0)
        slurm.now += 1
    assert slurm.asked == [7] * 3
    slurm.submit_line = "sbatch a.sh"
    for _ in range(300):
        await away.warn_jobs({NODE: (7,)}, 9000.0)
        slurm.now += 1
    assert slurm.asked == [7] * 4
