"""What Slurm says now, as domain objects: through slurmrestd, and through accounting for what the controller forgot."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from headway.domain.live import JobState, NodeState
from headway.domain.machine import Machine
from headway.errors import HeadwayError, NotFound
from headway.machines.ssh import Remote
from headway.slurm import history
from headway.slurm.adapters import adapter
from headway.slurm.adapters.base import Adapter, Reservation
from headway.slurm.rest import Forwards, Rest, SlurmToken

# A detailed row is 40 kB and costs slurmrestd half a MiB of memory, so details are asked of single jobs alone: as many as
# this in one reading, so many at a time, and the rest in the next readings.
DETAILS_A_READING = 32
DETAILS_AT_ONCE = 4
MOST_SIBLINGS = 8  # rows that the id of an array's own may bring along


class Links(Forwards, Remote, Protocol):
    """The part of Connections that reading needs."""


class SlurmReader:
    """Reads one cluster. Keep it, for it keeps connections and the GPU numbers of running jobs; close it at the end."""

    def __init__(self, connections: Links, head: Machine, jwt_key: bytes, version: str) -> None:
        self._connections = connections
        self._head = head
        self._version = version
        self._adapter: Adapter = adapter(version)
        self._rest = Rest(connections, head, SlurmToken(jwt_key))
        self._held: dict[int, tuple[int, dict[str, tuple[int, ...]]]] = {}  # job -> (start time, node -> GPUs)

    async def close(self) -> None:
        await self._rest.close()

    async def nodes(self) -> tuple[NodeState, ...]:
        """Every node of slurm.conf, in its order."""
        rows = await self._rows(self._adapter.nodes, "nodes")
        nodes = tuple(self._adapter.node_state(row) for row in rows)
        if not self._adapter.reservations_apart:
            return nodes
        now = time.time()
        held = {
            name: one.name
            for one in await self.reservations()
            if one.start_time <= now < one.end_time
            for name in one.nodes
        }
        return tuple(replace(node, reservation=held.get(node.name, "")) for node in nodes)

    async def jobs(self) -> tuple[JobState, ...]:
        """Active jobs and those that ended within MinJobAge; running ones with the GPUs they hold."""
        rows = await self._rows(self._adapter.jobs, "jobs", self._adapter.plain)
        jobs = [self._adapter.job_state(row) for row in rows]
        if self._adapter.plain == self._adapter.detailed:
            return tuple(jobs)
        await self._learn_gpus(jobs)
        return tuple(replace(job, gpu_indexes=self._held[job.id][1]) if job.id in self._held else job for job in jobs)

    async def job(self, job_id: int) -> JobState:
        """One job, from accounting once the controller has forgotten it. Raises NotFound."""
        try:
            rows = await self._rows(self._adapter.job.format(id=job_id), "jobs", self._adapter.plain)
        except NotFound:
            rows = []
        for row in rows:  # an array's first id brings all its tasks
            job = self._adapter.job_state(row)
            if job.id == job_id:
                return job
        ended = await history.job(self._connections, self._head, job_id, self._version)
        if ended is None:
            raise NotFound(f"{self._head.cluster} has no job {job_id}", hint="headway queue lists the active ones")
        return ended

    async def tasks(self, array: int) -> tuple[JobState, ...]:
        """The tasks of an array that the controller knows; () when it has forgotten them."""
        try:
            rows = await self._rows(self._adapter.job.format(id=array), "jobs", self._adapter.plain)
        except NotFound:
            return ()
        return tuple(self._adapter.job_state(row) for row in rows)

    async def reservations(self) -> tuple[Reservation, ...]:
        rows = await self._rows(self._adapter.reservations, "reservations")
        return tuple(self._adapter.reservation(row) for row in rows)

    async def ping(self) -> bool:
        """Whether slurmctld answers, through slurmrestd and the SSH connection."""
        try:
            rows = await self._rows(self._adapter.ping, "pings")
        except HeadwayError:
            return False
        return any("UP" in (row.get("pinged"), row.get("ping")) for row in rows)

    async def _rows(self, path: str, key: str, params: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        rows = (await self._rest.get(path, params)).get(key)
        return rows if isinstance(rows, list) else []

    async def _learn_gpus(self, jobs: list[JobState]) -> None:
        """Which GPUs a job holds does not change while it runs: asked once a start, and forgotten with the job."""
        running = {job.id: job.start_time for job in jobs if job.gpus and job.nodes and job.state == "RUNNING"}
        self._held = {i: held for i, held in self._held.items() if running.get(i) == held[0]}
        siblings = Counter(job.array_job_id for job in jobs)  # the last task of an array has the array's own id
        new = [i for i in running if i not in self._held and siblings[i] <= MOST_SIBLINGS]
        few = asyncio.Semaphore(DETAILS_AT_ONCE)
        answers = await asyncio.gather(*(self._detail(job_id, few) for job_id in new[:DETAILS_A_READING]))
        for row in (row for rows in answers for row in rows):
            job = self._adapter.job_state(row)
            if job.id in running and job.start_time == running[job.id]:
                self._held[job.id] = (job.start_time, job.gpu_indexes)

    async def _detail(self, job_id: int, few: asyncio.Semaphore) -> list[dict[str, Any]]:
        try:
            async with few:
                return await self._rows(self._adapter.job.format(id=job_id), "jobs", self._adapter.detailed)
        except NotFound:  # ended and forgotten between the two questions
            return []
