"""Reads Slurm's current state as domain objects: through slurmrestd, and through accounting for jobs that slurmctld
has dropped."""

from __future__ import annotations

import asyncio
import marshal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import MOST_SIBLINGS, JobState, NodeState, Reservation
from headway.errors import HeadwayError, NotFound, Unreachable
from headway.slurm.accounting import sacct_jobs
from headway.slurm.adapters import adapter_for
from headway.slurm.adapters.base import Adapter
from headway.slurm.rest import ForwardsSockets, SlurmRestClient, SlurmToken
from headway.slurm.squeue_summary import SqueueLine, read_squeue
from headway.transport.ssh import Remote

# A detailed row is 40 kB and costs slurmrestd half a MiB of memory, so details are read for single jobs only: at most
# MAX_DETAILS_PER_READ jobs in one reading, DETAILS_AT_ONCE at a time, and the rest in the next readings.
MAX_DETAILS_PER_READ = 32
DETAILS_AT_ONCE = 4
MANY_JOBS = 1000  # from this number of jobs on, squeue is run first to see which jobs have changed
MAX_CHANGED = 256  # jobs that are read one by one; for more, reading all jobs at once is quicker
FULL_READ_S = 60.0  # seconds between two full readings, for fields that squeue's line does not show


class ReaderConnections(ForwardsSockets, Remote, Protocol):
    """The part of Connections that reading needs."""


class SlurmReader:
    """Reads one cluster. Keep the object, because it keeps connections and the GPU numbers of running jobs; close
    it at the end."""

    def __init__(
        self,
        connections: ReaderConnections,
        head: Machine,
        jwt_key: bytes,
        version: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._head = head
        self._version = version
        self._adapter: Adapter = adapter_for(version)
        self._rest = SlurmRestClient(connections, head, SlurmToken(jwt_key))
        self._clock = clock
        self._known: dict[int, tuple[int, JobState]] = {}  # job id -> (hash of its record, the job)
        self._glances: dict[int, SqueueLine] = {}  # job id -> its line of the last squeue
        self._whole_at = clock()  # when everything was last read
        self._gpus_of_job: dict[int, tuple[int, dict[str, tuple[int, ...]]]] = {}  # job -> (start time, node -> GPUs)

    async def close(self) -> None:
        """Closes the connections to slurmrestd."""
        await self._rest.close()

    async def nodes(self) -> tuple[NodeState, ...]:
        """Returns every node of slurm.conf, in its order."""
        rows = await self._rows(self._adapter.nodes, "nodes")
        nodes = tuple(self._adapter.node_state(row) for row in rows)
        if not self._adapter.reservations_apart:
            return nodes
        now = time.time()
        reservation_of = {
            name: reservation.name
            for reservation in await self.reservations()
            if reservation.start_time <= now < reservation.end_time
            for name in reservation.nodes
        }
        return tuple(replace(node, reservation=reservation_of.get(node.name, "")) for node in nodes)

    async def jobs(self) -> tuple[JobState, ...]:
        """Returns active jobs and jobs that ended within MinJobAge; running jobs with their GPU numbers."""
        many = len(self._known) >= MANY_JOBS
        jobs = await self._changed() if many and self._clock() - self._whole_at < FULL_READ_S else None
        if jobs is None:
            self._whole_at = self._clock()
            if many:  # first, so that a change during the reading is noticed next time
                self._glances = await read_squeue(self._connections, self._head)
            path, plain = self._adapter.jobs, self._adapter.plain
            jobs = [row for row in await self._rows(path, "jobs", plain, self._known_job) if isinstance(row, JobState)]
        if self._adapter.plain != self._adapter.detailed:
            await self._learn_gpus(jobs)
            jobs = [self._with_gpus(job) for job in jobs]
        self._known = {job.id: (self._known[job.id][0], job) for job in jobs}
        return tuple(jobs)

    async def _changed(self) -> list[JobState] | None:
        """Returns the jobs of the last reading, updated, or None where reading everything is quicker."""
        before, now = self._glances, await read_squeue(self._connections, self._head)
        self._glances = now
        jobs: dict[int, JobState] = {}
        ask = []
        for number, seen in now.items():
            was, known = before.get(number), self._known.get(number)
            job = known[1] if known is not None else None
            if job is not None and was is not None and was != seen:
                job = seen.updated_job(job) if was.stable == seen.stable and seen.pending else None
            if job is None or was is None:
                ask.append(number)
            else:
                jobs[number] = job
        siblings = Counter(job.array_job_id for _, job in self._known.values())
        if len(ask) > MAX_CHANGED or any(siblings[number] > MOST_SIBLINGS for number in ask):
            return None
        few = asyncio.Semaphore(DETAILS_AT_ONCE)
        answers = await asyncio.gather(*(self._record(number, few, self._adapter.plain) for number in ask))
        jobs |= {job.id: job for rows in answers for job in map(self._adapter.job_state, rows) if job.id in now}
        for number, job in jobs.items():
            if number not in self._known or self._known[number][1] is not job:
                self._known[number] = (0, job)  # 0: the next full reading converts its record again
        return [jobs[number] for number in sorted(jobs)]

    def _known_job(self, row: dict[str, Any]) -> Any:
        """Returns the job of a record: the same object as in the last reading where nothing has changed. Ten
        thousand records as dictionaries take 200 MB, and converting them all again takes half a second."""
        if "job_id" not in row or "job_state" not in row:
            return row
        digest = hash(marshal.dumps(row, 2))
        number = int(row["job_id"])
        known = self._known.get(number)
        if known is not None and known[0] == digest:
            return known[1]
        job = self._adapter.job_state(row)
        self._known[number] = (digest, job)
        return job

    def _with_gpus(self, job: JobState) -> JobState:
        indexes = self._gpus_of_job[job.id][1] if job.id in self._gpus_of_job else {}
        return job if job.gpu_indexes == indexes else replace(job, gpu_indexes=indexes)

    async def job(self, job_id: int) -> JobState:
        """Returns one job, from accounting when the controller has forgotten it. Raises NotFound."""
        try:
            rows = await self._rows(self._adapter.job.format(id=job_id), "jobs", self._adapter.plain)
        except NotFound:
            rows = []
        for row in rows:  # the array's own id returns all its tasks
            job = self._adapter.job_state(row)
            if job.id == job_id:
                return job
        ended = await sacct_jobs.read_job(self._connections, self._head, job_id, self._version)
        if ended is None:
            raise NotFound(f"{self._head.cluster} has no job {job_id}", hint="headway queue lists active jobs")
        return ended

    async def jobs_by_id(self, numbers: Iterable[int]) -> tuple[JobState, ...]:
        """Returns those jobs that the controller knows. An array's own number returns all its tasks, or none where
        the array has more than MOST_SIBLINGS."""
        few = asyncio.Semaphore(DETAILS_AT_ONCE)
        answers = await asyncio.gather(*(self._record(number, few, self._adapter.plain) for number in numbers))
        return tuple(self._adapter.job_state(row) for rows in answers if len(rows) <= MOST_SIBLINGS for row in rows)

    async def array_tasks(self, array: int) -> tuple[JobState, ...]:
        """Returns the tasks of an array that the controller knows; () when it has forgotten them."""
        try:
            rows = await self._rows(self._adapter.job.format(id=array), "jobs", self._adapter.plain)
        except NotFound:
            return ()
        return tuple(self._adapter.job_state(row) for row in rows)

    async def reservations(self) -> tuple[Reservation, ...]:
        """Returns all reservations."""
        rows = await self._rows(self._adapter.reservations, "reservations")
        return tuple(self._adapter.reservation(row) for row in rows)

    async def ping(self) -> bool:
        """Returns whether slurmctld answers, through slurmrestd and the SSH connection."""
        try:
            rows = await self._rows(self._adapter.ping, "pings")
        except HeadwayError:
            return False
        return any("UP" in (row.get("pinged"), row.get("ping")) for row in rows)

    async def _rows(
        self,
        path: str,
        key: str,
        params: Mapping[str, str] | None = None,
        hook: Callable[[dict[str, Any]], Any] | None = None,
    ) -> list[Any]:
        """Returns the list under `key`. Raises Unreachable for an answer without it, which does not mean that the
        list is empty."""
        rows = (await self._rest.get(path, params, hook)).get(key)
        if isinstance(rows, list):
            return rows
        raise Unreachable(
            f"slurmrestd on {self._head.name} answered {path} without {key}",
            hint=f"headway exec {self._head.cluster} -- journalctl -u slurmrestd -n 50",
        )

    async def _learn_gpus(self, jobs: list[JobState]) -> None:
        """Reads which GPUs new running jobs have. These do not change while a job runs, so they are read once a
        start and forgotten with the job."""
        held = (job for job in jobs if (job.gpus or job.gpu_shares) and job.nodes and job.state == "RUNNING")
        running = {job.id: job.start_time for job in held}
        self._gpus_of_job = {i: entry for i, entry in self._gpus_of_job.items() if running.get(i) == entry[0]}
        siblings = Counter(job.array_job_id for job in jobs)  # the last task of an array has the array's own id
        new = [i for i in running if i not in self._gpus_of_job and siblings[i] <= MOST_SIBLINGS]
        few = asyncio.Semaphore(DETAILS_AT_ONCE)
        detailed = self._adapter.detailed
        answers = await asyncio.gather(*(self._record(job_id, few, detailed) for job_id in new[:MAX_DETAILS_PER_READ]))
        for row in (row for rows in answers for row in rows):
            job = self._adapter.job_state(row)
            if job.id in running and job.start_time == running[job.id]:
                self._gpus_of_job[job.id] = (job.start_time, job.gpu_indexes)

    async def _record(self, job_id: int, few: asyncio.Semaphore, params: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            async with few:
                return await self._rows(self._adapter.job.format(id=job_id), "jobs", params)
        except NotFound:  # the job ended and was forgotten between the two requests
            return []
