"""Jobs on nodes that are wanted empty: warned before their deadline, requeued after it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.cluster.context import Env, Say
from headway.domain.cluster import Cluster
from headway.domain.machine import Machine
from headway.errors import CommandFailed, HeadwayError
from headway.slurm import job_commands, node_jobs
from headway.slurm.signal_request import Wish, warning_asked

LOOK_S = 1.0
ENDING_S = 60.0  # for jobs that were requeued to be gone from the node
ASKED_AT_ONCE = 8  # commands on the head
ASK_AGAIN_S = 60.0

Jobs = Mapping[str, tuple[int, ...]]  # node -> what runs there


@dataclass(frozen=True, slots=True)
class _Asked:
    wish: Wish | None
    again_at: float  # where not all of it was answered; a job without a script has none


@dataclass
class SendAway:
    """`why`: what happens to the node, for the jobs' owners."""

    cluster: Cluster
    env: Env
    say: Say
    head: Machine
    why: str
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    warned: set[int] = field(default_factory=set)
    wishes: dict[int, _Asked] = field(default_factory=dict)
    untold: set[int] = field(default_factory=set)  # jobs of which it was said that they could not be sent away yet

    async def warn(self, jobs: Jobs, ends: float) -> None:
        """Those that asked for a signal before their end get it so long before the deadline."""
        run, head = self.env.connections, self.head
        left = {job for numbers in jobs.values() for job in numbers} - self.warned
        await self._ask(left)
        for job in sorted(left & self.wishes.keys()):
            left_s, asked = ends - self.clock(), self.wishes[job].wish
            if left_s > max(self.cluster.health.warning_s, asked.before_s if asked else 0):
                continue
            self.warned.add(job)
            with contextlib.suppress(HeadwayError):
                await job_commands.notify_job(run, head, job, f"headway: {self.why} in {max(0, round(left_s))} s")
                if asked is not None:
                    await job_commands.signal_job(run, head, job, asked.signal, batch_only=asked.batch_only)

    async def _ask(self, jobs: Collection[int]) -> None:
        """What these want to be sent, of those that it is not known of: a deadline may be days away, and each look comes here."""
        self.wishes = {job: asked for job, asked in self.wishes.items() if job in jobs}
        now, places = self.clock(), asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(job: int) -> None:
            async with places:
                with contextlib.suppress(HeadwayError):
                    script, command = await job_commands.read_script_and_command(self.env.connections, self.head, job)
                    again_at = math.inf if script and command else now + ASK_AGAIN_S
                    self.wishes[job] = _Asked(warning_asked(script, command), again_at)

        due = [job for job in sorted(jobs) if job not in self.wishes or now >= self.wishes[job].again_at]
        await asyncio.gather(*map(ask, due))

    async def now(self, jobs: Jobs) -> frozenset[str]:
        """Requeued, and gone from their nodes or given up on; what forbids that ends. A job that ends by itself, and holds its
        nodes for its epilog alone, is waited for: requeued, it would run once more. Returns the nodes of jobs that the
        controller could not be told to send away: they go on there until it can."""
        untold = set()
        for job in sorted({job for numbers in jobs.values() for job in numbers}):
            if not await self._sent(job):
                untold.add(job)
        left = frozenset(name for name, numbers in jobs.items() if untold.intersection(numbers))
        run, going, ends = self.env.connections, jobs.keys() - left, self.clock() + ENDING_S
        while self.clock() < ends and going & (await node_jobs.jobs_by_node(run, self.head)).keys():
            await self.sleep(LOOK_S)
        return left

    async def _sent(self, job: int) -> bool:
        """Whether nothing is left to be told: it goes, or ends."""
        try:
            word = await job_commands.read_job_state(self.env.connections, self.head, job)
            if node_jobs.is_allocated(word):
                await self._send(job)
        except HeadwayError as error:
            await self._say_untold(job, error)
            return False
        return bool(word)  # none: it is gone, which the next look shows, or the controller did not answer

    async def _send(self, job: int) -> None:
        run, head = self.env.connections, self.head
        try:
            await job_commands.requeue_job(run, head, job)
        except CommandFailed as error:
            if not job_commands.is_requeue_forbidden(error):
                raise
            await self.say("jobs", f"job {job} can't be requeued: it ends, for {self.why}", level="warning")
            await job_commands.cancel_job(run, head, job)
        else:
            await self.say("jobs", f"job {job} is requeued: {self.why}", level="warning")

    async def _say_untold(self, job: int, error: HeadwayError) -> None:
        if job not in self.untold:
            self.untold.add(job)
            words = f"job {job} goes on until it can be requeued: {error.message.splitlines()[0]}"
            await self.say("jobs", words, level="warning")


def listed(jobs: Sequence[int]) -> str:
    return f"job{'s' * (len(jobs) != 1)} {', '.join(map(str, jobs))}"
