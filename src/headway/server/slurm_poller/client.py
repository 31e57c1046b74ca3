"""The server's end of a cluster's poller: keeps the last reading and updates it with the changes that the poller reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.server.slurm_poller.frames import (
    BEGIN,
    END,
    GONE,
    HEAD,
    JOB,
    LOOK,
    MANY,
    NODE,
    NODES,
    RESERVATIONS,
    job_of,
    nodes_of,
    reservations_of,
    with_news,
    with_nodes,
)
from headway.services.cluster_backend import SlurmReading
from headway.transport.process import start_process, stop_process

if TYPE_CHECKING:
    from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation

ANSWER_S = 60.0  # seconds; a reading that takes longer will never end
BREATH = 16  # frames between yields to other tasks; a request takes some ten yields
ARGV = (sys.executable, "-m", "headway.server.slurm_poller.process")


class SlurmPoller:
    """Starts the poller process with the first reading, and again after it died. Concurrent callers of `read` share
    one reading."""

    def __init__(
        self, head: Machine, bootstrap_key: str, jwt_key: bytes, version: str, argv: tuple[str, ...] = ARGV
    ) -> None:
        settings = {"head": asdict(head), "bootstrap_key": bootstrap_key, "jwt_key": jwt_key.hex(), "version": version}
        self._settings = json.dumps(settings).encode() + b"\n"
        self._name = head.cluster
        self._argv = argv
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[SlurmReading] | None = None
        self._jobs: dict[int, JobState] = {}
        self._rows: dict[int, bytes] = {}
        self._anew = False  # the poller has started and has not yet reported its full state
        self._nodes: tuple[NodeState, ...] = ()
        self._reservations: tuple[Reservation, ...] = ()
        self._listed: tuple[JobState, ...] = ()

    @property
    def pid(self) -> int | None:
        """Returns the process id of the poller; None if it is not running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def read(self) -> SlurmReading:
        """Returns the current state of Slurm. Raises Unreachable if Slurm does not answer or the poller has died
        (the next reading starts another)."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        reading = self._reading
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not reading.cancelled() or (task is not None and task.cancelling()):
                raise
            # That reading was cancelled, not the task that waits for it.
            raise Unreachable(f"the reader of {self._name} was closed", hint="it reopens by itself") from None

    async def close(self) -> None:
        """Cancels the current reading and stops the poller process."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._stop()

    async def _read(self) -> SlurmReading:
        began = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                process = await self._running()
                assert process.stdin is not None
                process.stdin.write(LOOK)
                await process.stdin.drain()
                await self._hear(process)
        except TimeoutError:
            await self._stop()
            raise Unreachable(f"reading {self._name} took longer than {ANSWER_S:g} s") from None
        except (asyncio.IncompleteReadError, OSError):
            await self._stop()
            raise Unreachable(
                f"the poller of {self._name} died", hint="it starts again by itself; headway server logs"
            ) from None
        return SlurmReading(self._nodes, self._listed, self._rows, self._reservations, began)

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await start_process(self._argv)
            assert self._process.stdin is not None
            self._process.stdin.write(self._settings)
        return self._process

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Reads the frames of one reading. They are applied only after the last one: a poller that dies half-way
        leaves the known state unchanged."""
        assert process.stdout is not None
        jobs: dict[int, JobState] = {}
        rows: dict[int, bytes] = {}
        gone: list[int] = []
        nodes, reservations, count = self._nodes, self._reservations, 0
        while True:
            kind, first, second = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
            text, row = await process.stdout.readexactly(first), await process.stdout.readexactly(second)
            count += 1
            if count % BREATH == 0 or kind == MANY:
                await asyncio.sleep(0)
            if kind == BEGIN:
                self._anew = True
            elif kind == JOB:
                job = job_of(text)
                jobs[job.id], rows[job.id] = job, row
            elif kind == MANY:
                jobs.update((job.id, job) for job in with_news(text, self._jobs))
            elif kind == GONE:
                gone = json.loads(text)
            elif kind == NODE:
                nodes = with_nodes(text, nodes)
            elif kind == NODES:
                nodes = nodes_of(text)
            elif kind == RESERVATIONS:
                reservations = reservations_of(text)
            elif kind == END:
                break
        if text:
            raise _error(json.loads(text))
        self._apply_changes(jobs, rows, gone)
        self._nodes, self._reservations = nodes, reservations

    def _apply_changes(self, jobs: dict[int, JobState], rows: dict[int, bytes], gone: list[int]) -> None:
        if self._anew:
            # Jobs that did not change while there was no poller keep the same object.
            jobs = {
                number: self._jobs[number] if self._jobs.get(number) == job else job for number, job in jobs.items()
            }
            self._jobs, self._rows = jobs, rows
        elif jobs or gone:
            self._jobs = {**self._jobs, **jobs}
            self._rows = {number: row for number, row in self._rows.items() if number not in jobs} | rows
            for number in gone:
                self._jobs.pop(number, None)
                self._rows.pop(number, None)
        if self._anew or jobs or gone:
            self._listed = tuple(self._jobs[number] for number in sorted(self._jobs))
        self._anew = False

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                await stop_process(process)


def _error(fields: dict[str, str]) -> HeadwayError:
    kind = Unreachable if fields.get("kind") == Unreachable.kind else HeadwayError
    return kind(fields.get("message", "the poller failed"), hint=fields.get("hint", ""))
