"""Replays of one what-if end together, and their error is the operation's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.errors import Refused
from headway.server.cluster_backend.whatif import WhatIfBackend
from headway.whatif import container
from headway.whatif.outcome import JobRun, Outcome
from tests.unit.whatif.clusters import lab

SACCT = (
    "JobID|User|Account|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|NNodes\n"
    "11|alice|vision|1795000000|1795000060|1795000160|100|5|COMPLETED|node=1,gres/gpu=8|1\n"
)


class _Head:
    """Stands in for the connection pool: the head's sacct answers."""

    head = None

    def __init__(self) -> None:
        self.links = self
        self.stdout = SACCT
        self.argv: list[str] = []

    async def slurm(self, _: Any) -> _Head:
        return self

    async def remote(self, _: Any, argv: list[str], *, timeout_s: float) -> _Head:
        self.argv = argv
        return self


async def _report(*_: Any, **__: Any) -> None: ...


async def _replay(head: _Head) -> Any:
    backend = WhatIfBackend(head)  # type: ignore[arg-type]
    return await backend.replay(lab(), lab(nodes=8), "now-1days", "now", "op-1", _report)


async def test_both_replays_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    async def run(cluster: Any, trace: Any, on_progress: Any, *, container: str) -> Outcome:
        names.append(container)
        on_progress(container_progress)
        (job,) = trace.jobs
        return Outcome([JobRun(job, job.submit + len(cluster.slot_names), job.submit + 100)])

    container_progress = container.Progress(10.0, 1, 0)
    monkeypatch.setattr(container, "run_replay", run)
    head = _Head()
    found = await _replay(head)
    assert sorted(names) == ["op-1-changed", "op-1-present"]
    assert {name: one.waits[-1].median_s for name, one in found.figures.items()} == {
        "real": 60,
        "present": 4,
        "changed": 8,
    }
    assert head.argv[head.argv.index("-S") + 1] == "now-1days"


async def test_a_failing_replay_ends_the_other_and_leaves_the_task_uncancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def run(cluster: Any, trace: Any, on_progress: Any, *, container: str) -> Outcome:
        if container.endswith("changed"):
            raise Refused("the replay failed: MariaDB did not start")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(container)
        raise AssertionError

    monkeypatch.setattr(container, "run_replay", run)
    with pytest.raises(Refused, match="MariaDB did not start"):
        await _replay(_Head())
    assert ended == ["op-1-present"]
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling(), "otherwise the worker takes the operation for one that a stopping server interrupts"


async def test_a_waiting_what_if_reads_no_jobs_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def run(cluster: Any, trace: Any, *_: Any, **__: Any) -> Outcome:
        began.set()
        await goes_on.wait()
        (job,) = trace.jobs
        return Outcome([JobRun(job, job.submit, job.submit + 100)])

    turns = asyncio.Event()

    async def report(step: str, *_: Any, **__: Any) -> None:
        if step == "turn":
            turns.set()

    monkeypatch.setattr(container, "run_replay", run)
    head = _Head()
    backend = WhatIfBackend(head)  # type: ignore[arg-type]
    first = asyncio.create_task(backend.replay(lab(), None, "now-1days", "now", "op-1", report))
    await began.wait()
    second = asyncio.create_task(backend.replay(lab(), None, "now-3days", "now", "op-2", report))
    await turns.wait()
    assert "now-3days" not in head.argv, "the jobs of a busy cluster take memory"
    goes_on.set()
    await asyncio.gather(first, second)
    assert "now-3days" in head.argv
