"""The server's side of the poller."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from headway.errors import Unreachable
from headway.server.slurm_poller.client import SlurmPoller
from headway.server.slurm_poller.frames import BEGIN, END, frame
from headway.server.slurm_poller.process import SnapshotChanges
from tests.support.clusters import builders
from tests.support.servers.poller_answers import FIRST, LAST, THEN, poller, told
from tests.support.waiting import eventually


def failed(message: str) -> bytes:
    return frame(END, json.dumps({"kind": "unreachable", "message": message, "hint": "wait"}).encode())


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
    """Also when the poller itself was started again while Slurm was down."""
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


async def test_closing_poller_fails_pending_read() -> None:
    silent = (sys.executable, "-c", "import sys; sys.stdin.read()")  # reads its requests, answers none
    one = SlurmPoller(builders.machine("lab-head"), "", b"k", "24.11", argv=silent)
    waiting = asyncio.create_task(one.read())
    await eventually(lambda: one.pid is not None)
    await one.close()
    with pytest.raises(Unreachable, match="closed"):
        await waiting
