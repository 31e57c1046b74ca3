"""The frames that the poller sends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.server.slurm_poller.frames import BEGIN, END, frame, job_of, packed
from headway.server.slurm_poller.process import FEW, SnapshotChanges
from headway.services.jobs.job_to_schema import job_row
from tests.support.clusters import builders
from tests.support.servers.poller_answers import FIRST, LAST, NODE, THEN, poller, told


@pytest.mark.parametrize(
    "job", [*FIRST, builders.job(9, more={"nice": 5}, required_nodes=("a", "b"), time_limit_s=None)]
)
def test_job_round_trips_through_pipe_format(job: JobState) -> None:
    assert job_of(json.dumps(packed(job)).encode()) == job


async def test_poller_sends_only_changed_jobs(tmp_path: Path) -> None:
    changes = SnapshotChanges()
    answers = [frame(BEGIN) + told(changes, *FIRST), told(changes, *THEN), told(changes, *LAST), told(changes, *LAST)]
    assert len(answers[3]) == len(frame(END))
    one = poller(tmp_path, *answers)
    first = await one.read()
    assert (first.nodes, first.jobs) == ((NODE,), FIRST)
    assert dict(first.rows) == {job.id: job_row(job) for job in FIRST}
    second = await one.read()
    assert second.jobs == THEN
    assert second.jobs[0] is first.jobs[0]
    third = await one.read()
    assert (third.jobs, sorted(third.rows)) == (LAST, [2, 3])
    assert (await one.read()).jobs is third.jobs
    await one.close()


async def test_poller_sends_only_changed_fields_of_many_jobs(tmp_path: Path) -> None:
    """Once a minute all priorities change: the same fields of each, and no row is made of which few are ever shown."""
    before = [builders.job(n, "PENDING", more={"nice": n}, required_nodes=("a",)) for n in range(1, 3 * FEW)]
    after = [replace(job, priority=job.id % 9, scheduled_nodes=("b", "c")) for job in before]
    after[0] = replace(before[0], gpu_indexes={"a": (1, 2)}, time_limit_s=None)
    after[1] = before[1]
    after = [*after[:-1], builders.job(5000)]
    changes = SnapshotChanges()
    answers = [frame(BEGIN) + told(changes, *before), told(changes, *after), told(changes, *before)]
    assert len(answers[1]) < len(answers[0]) / 20
    one = poller(tmp_path, *answers)
    assert (await one.read()).jobs == tuple(before)
    second = await one.read()
    assert second.jobs == tuple(after)
    assert second.jobs[1] is (await one.read()).jobs[1]
    assert dict(second.rows) == {2: job_row(before[1]), 5000: job_row(after[-1])}, "no row of before"
    await one.close()


async def test_poller_sends_only_changed_nodes(tmp_path: Path) -> None:
    nodes = tuple(builders.node(f"lab-1-{place}") for place in range(1, 200))
    after = (*nodes[:7], builders.node(nodes[7].name, "DRAIN", reason="disk"), *nodes[8:])
    changes = SnapshotChanges()
    answers = [told(changes, nodes=nodes), told(changes, nodes=after), told(changes, nodes=after[1:])]
    assert len(answers[1]) < len(answers[0]) / 50
    one = poller(tmp_path, frame(BEGIN) + answers[0], *answers[1:])
    assert (await one.read()).nodes == nodes
    second = await one.read()
    assert second.nodes == after
    assert (await one.read()).nodes == after[1:]
    await one.close()
