"""Removes jobs from nodes: warns the jobs before a deadline and requeues them after it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.job_states import ALLOCATED
from headway.errors import CommandFailed, HeadwayError
from headway.slurm import job_commands, node_jobs
from headway.slurm.signal_option import SignalRequest, requested_signal
from headway.store import StoreUnavailable

POLL_S = 1.0
ENDING_S = 60.0  # seconds for requeued jobs to leave the node
COMMANDS_AT_ONCE = 8  # commands that run on the head at the same time
RETRY_S = 60.0

JobsByNode = Mapping[str, tuple[int, ...]]  # node -> ids of its jobs


@dataclass(frozen=True, slots=True)
class _Asked:
    wish: SignalRequest | None
    # when to read the job again if its script or command was not found; a job without a script has none
    again_at: float


@dataclass
class JobEviction:
    """Removes the jobs from nodes. `why`: what happens to the node, shown to the jobs' owners."""

    cluster: Cluster
    context: ClusterContext
    report: ReportProgress
    head: Machine
    why: str
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    warned: set[int] = field(default_factory=set)
    warnings: dict[int, _Asked] = field(default_factory=dict)
    failed_reported: set[int] = field(default_factory=set)  # jobs whose failed requeue was reported

    async def warn_jobs(self, jobs: JobsByNode, ends: float) -> None:
        """Notifies jobs before the deadline and sends a signal to those that requested one, at the time before the
        deadline that they requested. `ends`: the deadline in unix seconds."""
        run, head = self.context.connections, self.head
        left = {job for numbers in jobs.values() for job in numbers} - self.warned
        await self._read_warnings(left)
        for job in sorted(left & self.warnings.keys()):
            left_s, request = ends - self.clock(), self.warnings[job].wish
            if left_s > max(self.cluster.health.warning_s, request.before_s if request else 0):
                continue
            self.warned.add(job)
            with contextlib.suppress(HeadwayError):
                await job_commands.notify_job(run, head, job, f"headway: {self.why} in {max(0, round(left_s))} s")
                if request is not None:
                    await job_commands.signal_job(run, head, job, request.signal, batch_only=request.batch_only)

    async def _read_warnings(self, jobs: Collection[int]) -> None:
        """Reads which signal each job requested, for jobs not read yet. The results are kept, because a deadline may be
        days away and each pass calls this."""
        self.warnings = {job: request for job, request in self.warnings.items() if job in jobs}
        now, places = self.clock(), asyncio.Semaphore(COMMANDS_AT_ONCE)

        async def ask(job: int) -> None:
            async with places:
                with contextlib.suppress(HeadwayError):
                    script, command = await job_commands.read_script_and_command(
                        self.context.connections, self.head, job
                    )
                    again_at = math.inf if script and command else now + RETRY_S
                    self.warnings[job] = _Asked(requested_signal(script, command), again_at)

        due = [job for job in sorted(jobs) if job not in self.warnings or now >= self.warnings[job].again_at]
        await asyncio.gather(*map(ask, due))

    async def evict_jobs(self, jobs: JobsByNode) -> frozenset[str]:
        """Requeues the jobs and waits until they have left their nodes. A job that may not be requeued is cancelled; a
        completing job is waited for. Returns the nodes of jobs that the controller could not requeue yet."""
        untold = set()
        for job in sorted({job for numbers in jobs.values() for job in numbers}):
            if not await self._try_evict(job):
                untold.add(job)
        left = frozenset(name for name, numbers in jobs.items() if untold.intersection(numbers))
        run, going, ends = self.context.connections, jobs.keys() - left, self.clock() + ENDING_S
        while self.clock() < ends and going & (await node_jobs.jobs_by_node(run, self.head)).keys():
            await self.sleep(POLL_S)
        return left

    async def _try_evict(self, job: int) -> bool:
        """Requeues or cancels the job. Returns whether nothing is left to do for it: it leaves the node or has
        ended."""
        try:
            word = await job_commands.read_job_state(self.context.connections, self.head, job)
            if word in ALLOCATED:
                await self._requeue_or_cancel(job)
        except StoreUnavailable:
            raise  # the server's database is no part of a machine
        except HeadwayError as error:
            await self._report_failed(job, error)
            return False
        return bool(word)  # "": the job is gone, which the next pass shows, or the controller did not answer

    async def _requeue_or_cancel(self, job: int) -> None:
        run, head = self.context.connections, self.head
        try:
            await job_commands.requeue_job(run, head, job)
        except CommandFailed as error:
            if not job_commands.is_requeue_forbidden(error):
                raise
            await self.report("jobs", f"job {job} can't be requeued and is ended: {self.why}", level="warning")
            await job_commands.cancel_job(run, head, job)
        else:
            await self.report("jobs", f"job {job} is requeued: {self.why}", level="warning")

    async def _report_failed(self, job: int, error: HeadwayError) -> None:
        if job not in self.failed_reported:
            self.failed_reported.add(job)
            words = f"job {job} continues until it can be requeued: {error.first_line}"
            await self.report("jobs", words, level="warning")


def format_jobs(jobs: Sequence[int]) -> str:
    """Returns "job 7" or "jobs 7, 8"."""
    return f"job{'s' * (len(jobs) != 1)} {', '.join(map(str, jobs))}"
