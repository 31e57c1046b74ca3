"""The poller process reports readings, the server applies them, and the server handles the poller's death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.slurm.state import JobState, NodeState
from headway.errors import Unreachable
from headway.server.slurm_poller.client import SlurmPoller
from headway.server.slurm_poller.frames import BEGIN, END, frame, job_of, packed
from headway.server.slurm_poller.process import FEW, SnapshotChanges
from headway.services.to_schemas import job_row
from tests.support.clusters import builders
from tests.support.waiting import eventually

NODE = builders.node("lab-1-1")
FIRST = (builders.job(1, nodes=("lab-1-1",), gpu_indexes={"lab-1-1": (0, 1)}), builders.job(2, "PENDING"))
THEN = (FIRST[0], builders.job(2), builders.job(3, "PENDING"))
LAST = (THEN[1], THEN[2])
CHILD = """
import os, sys
sys.stdin.readline()
for number, answer in enumerate(sys.argv[1:]):
    if not sys.stdin.readline():
        break
    with open(answer, "rb") as file:
        sys.stdout.buffer.write(file.read())
    sys.stdout.buffer.flush()
"""


def poller(folder: Path, *answers: bytes) -> SlurmPoller:
    """One that answers with these, one a reading, and then ends."""
    files = [folder / str(number) for number in range(len(answers))]
    for file, answer in zip(files, answers, strict=True):
        file.write_bytes(answer)
    argv = (sys.executable, "-c", CHILD, *map(str, files))
    return SlurmPoller(builders.machine("lab-head"), "key", b"jwt", "24.11", argv)


def told(changes: SnapshotChanges, *jobs: JobState, nodes: tuple[NodeState, ...] = (NODE,)) -> bytes:
    return b"".join(changes.of(nodes, jobs)) + frame(END)


def failed(message: str) -> bytes:
    return frame(END, json.dumps({"kind": "unreachable", "message": message, "hint": "wait"}).encode())


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


async def test_concurrent_reads_share_one_reading(tmp_path: Path) -> None:
    changes = SnapshotChanges()
    one = poller(tmp_path, frame(BEGIN) + told(changes, *FIRST), told(changes, *THEN))
    readings = await asyncio.gather(*(one.read() for _ in range(20)))
    assert {id(reading) for reading in readings} == {id(readings[0])}
    assert (await one.read()).jobs == THEN
    await one.close()


async def test_dead_poller_raises_unreachable_and_is_restarted(tmp_path: Path) -> None:
    one = poller(tmp_path, frame(BEGIN) + told(SnapshotChanges(), *FIRST), told(SnapshotChanges(), *FIRST))
    before = await one.read()
    pid = one.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unreachable, match="the poller of lab died"):
        await one.read()
    again = await one.read()
    assert one.pid != pid
    assert again.jobs == before.jobs
    assert again.jobs[0] is before.jobs[0]  # nothing happened to it, so nothing is said to have
    await one.close()
    assert one.pid is None


async def test_first_reading_after_outage_drops_vanished_jobs(tmp_path: Path) -> None:
    """Also when the poller itself was started anew while Slurm was down."""
    one = poller(tmp_path, frame(BEGIN) + failed("slurmctld is away"), told(SnapshotChanges(), *LAST))
    with pytest.raises(Unreachable, match="slurmctld is away") as caught:
        await one.read()
    assert caught.value.hint == "wait"
    one._jobs = {job.id: job for job in FIRST}
    assert (await one.read()).jobs == LAST
    await one.close()


async def test_truncated_reading_changes_nothing(tmp_path: Path) -> None:
    changes = SnapshotChanges()
    first, second = frame(BEGIN) + told(changes, *FIRST), told(changes, *THEN)
    one = poller(tmp_path, first, second[: len(second) // 2])
    before = await one.read()
    with pytest.raises(Unreachable):
        await one.read()
    assert (one._listed, one._rows) == (before.jobs, dict(before.rows))
    await one.close()


async def test_poller_process_reports_ssh_error_and_exits_on_close() -> None:
    head = replace(builders.machine("lab-head"), address="127.0.0.1", port=1)
    one = SlurmPoller(head, "no key", b"k" * 32, "24.11")
    with pytest.raises(Exception, match=r"private key|no SSH"):
        await one.read()
    pid = one.pid
    assert pid is not None
    await one.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_closing_poller_fails_pending_read() -> None:
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()")  # reads its requests, answers none
    one = SlurmPoller(builders.machine("lab-head"), "", b"k", "24.11", argv=silent)
    waiting = asyncio.create_task(one.read())
    await eventually(lambda: one.pid is not None)
    await one.close()
    with pytest.raises(Unreachable, match="closed"):
        await waiting
