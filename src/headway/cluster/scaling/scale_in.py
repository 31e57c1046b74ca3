"""Takes machines out of a cluster that goes on: drained, empty, given back.

What is under way is in Slurm's own reason of each node, so a run that was killed is finished by the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.cluster.context import Env, Say
from headway.cluster.monitoring.scrape_targets import tell_prometheus
from headway.cluster.scaling.job_eviction import LOOK_S, SendAway, listed
from headway.domain.cluster import Cluster
from headway.domain.machine import Machine, MachineState
from headway.domain.slots import LEAVES, NO_MACHINE, Deadline, out_before
from headway.domain.slurm.hostlist import compress
from headway.errors import HeadwayError, Refused
from headway.slurm import node_commands, node_jobs

LATE_JOB_S = 20.0  # a job that came between the look and the drain may be about to end


async def stays(env: Env, head: Machine, name: str, reason: str) -> None:
    """A node that was to leave (`reason`: Slurm's now) is as it was before: in service, or out for what was said of it then."""
    before = out_before(reason) if reason.startswith(LEAVES) else ""
    if before:
        await node_commands.drain_node(env.connections, head, name, before)
    else:
        await node_commands.resume_node(env.connections, head, name)


class SteppedAside(Exception):
    """Another operation goes first. What is under way stays drained, and whoever goes on finds it so."""


class Beside(Protocol):
    """Work that goes on while jobs on nodes that leave are waited for: deadlines may be days."""

    async def look(self, names: Collection[str]) -> None:
        """One look; hands off what belongs to these nodes."""
        ...

    async def others_wait(self) -> bool:
        """Whether another operation is to go first."""
        ...

    async def rest(self) -> None:
        """Until nothing of it is under way."""
        ...

    async def close(self) -> None:
        """Ends at once what is under way."""
        ...


@dataclass
class Leaving:
    """`deadline`: None: nobody said that jobs may be sent away."""

    cluster: Cluster
    env: Env
    say: Say
    head: Machine | None
    machines: Mapping[str, Machine]
    deadline: Deadline | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    before: Callable[[Machine], Awaitable[None]] | None = None  # what is done on a machine that is let go
    beside: Beside | None = None
    yields: bool = False  # to other operations, while jobs are waited for
    waited: bool = False  # `beside` had its turns: there may be other machines now than before
    stays: bool = False  # the slot, which another machine gets: the provider keeps its place
    away: SendAway | None = None
    gone: set[str] = field(default_factory=set)

    async def leave(self, names: Sequence[str]) -> None:
        """Until none of these has a machine. Raises Refused, with the nodes back in service, when jobs run there and
        nobody said that they may be sent away; SteppedAside."""
        head = self.head
        if head is None or head.state is not MachineState.RUNNING:
            self._nobody_knows(names)
            await self._give_back(names)
            return
        self.away = SendAway(self.cluster, self.env, self.say, head, "its node leaves", self.clock, self.sleep)
        nodes = None if self.deadline is None else self.deadline.nodes
        meant = [name for name in names if nodes is None or name in nodes]
        await self._empty(head, meant, self.deadline.at if self.deadline else None)
        await self._empty(head, [name for name in names if name not in meant], None)

    async def _empty(self, head: Machine, names: Sequence[str], until: float | None) -> None:
        known: tuple[str, ...] = ()  # to Slurm
        ends = self.clock() + LATE_JOB_S if until is None else until
        said: dict[str, tuple[int, ...]] = {}
        while left := [name for name in names if name not in self.gone]:
            known = await self._drain(head, left)
            busy = await node_jobs.jobs_by_node(self.env.connections, head)
            idle = [name for name in left if name not in busy]
            await self._give_back(idle, known)
            if idle and len(idle) < len(left) and until is not None and not self.stays:
                await self._tell(head)
            jobs = {name: busy[name] for name in left if name in busy}
            if jobs and jobs != said and until is not None:
                said = jobs
                await self._say_waits(jobs, ends)
            if jobs and self.clock() >= ends:
                if until is None:
                    await self._stay(head, jobs)
                await self._send_away(head, jobs)
            elif jobs and until is not None:
                assert self.away is not None
                await self.away.warn(jobs, ends)
            if jobs and self.beside is not None and until is not None:
                self.waited = True
                await self.beside.look(tuple(jobs))
                if self.yields and await self.beside.others_wait():
                    raise SteppedAside
            if jobs:
                await self.sleep(LOOK_S)

    async def _tell(self, head: Machine) -> None:
        """Others are waited for, days perhaps: until then those that went are nobody's to miss."""
        try:
            await tell_prometheus(self.cluster, self.env)
        except HeadwayError as error:
            await self.say(head.name, f"Prometheus can't be told: {error.message.splitlines()[0]}", level="warning")

    async def _drain(self, head: Machine, names: Sequence[str]) -> tuple[str, ...]:
        """At each look, for a wait may be days: a person may have returned a node meanwhile. What somebody else has said of it
        stands behind our reason: it may stay after all. Returns those that Slurm knows."""
        run, serving = self.env.connections, list[str]()
        states = await node_commands.read_node_reasons(run, head)
        known = tuple(name for name in names if name in states)
        for name in known:
            word, reason = states[name]
            if node_commands.is_in_service(word) or reason in ("", "none", NO_MACHINE):
                serving.append(name)
            elif not reason.startswith(LEAVES):
                await node_commands.drain_node(run, head, name, f"{LEAVES}: {reason}")
        await node_commands.drain_nodes(run, head, serving, LEAVES)
        return known

    def _nobody_knows(self, names: Sequence[str]) -> None:
        """Jobs outlive the controller: without it nobody can say that a machine which runs is idle."""
        if self.head is None:
            return  # Slurm's state went with it: there is nothing left that a job could come back to
        running = [name for name in names if self.machines[name].state is not MachineState.STOPPED]
        if running:
            raise Refused(
                f"{self.head.name} is down: whether jobs run on {compress(running)} can't be known",
                hint="bring the head back with as many nodes as there were (headway apply), then take nodes away",
            )

    async def _say_waits(self, jobs: Mapping[str, tuple[int, ...]], ends: float) -> None:
        left_s = max(0, round(ends - self.clock()))
        for name, numbers in jobs.items():
            await self.say(name, f"drained; waits for {listed(numbers)}, {left_s} s at most")

    async def _stay(self, head: Machine, jobs: Mapping[str, tuple[int, ...]]) -> None:
        states = await node_commands.read_node_reasons(self.env.connections, head)
        for name in jobs:
            await stays(self.env, head, name, states.get(name, ("", LEAVES))[1])
        what = "; ".join(f"{name} runs {listed(numbers)}" for name, numbers in jobs.items())
        raise Refused(
            f"nodes with jobs would go: {what}",
            hint="say how long jobs may go on before they are requeued: --deadline 10:00",
        )

    async def _send_away(self, head: Machine, jobs: Mapping[str, tuple[int, ...]]) -> None:
        """The deadline is over. A node on which another job has started meanwhile stays for the next look."""
        assert self.away is not None
        left = await self.away.now(jobs)
        known = await self._drain(head, list(jobs))
        busy = await node_jobs.jobs_by_node(self.env.connections, head)
        rid = [name for name in jobs if name not in left and set(busy.get(name, ())) <= set(jobs[name])]
        await self._give_back(rid, known)

    async def _give_back(self, names: Sequence[str], known: Sequence[str] = ()) -> None:
        """Nothing runs there: the machine goes, then Slurm hears that there is none. One that its provider can't delete stays
        drained, and is an error when the others have gone."""
        if not names:
            return
        if self.before is not None:
            await asyncio.gather(*(self.before(self.machines[name]) for name in names))
        failed: dict[str, BaseException] = {}
        if not self.stays:
            ends = [self.env.provider.delete(self.machines[name]) for name in names]
            met = zip(names, await asyncio.gather(*ends, return_exceptions=True), strict=True)
            failed = {name: error for name, error in met if error is not None}
        went = [name for name in names if name not in failed]
        self.gone.update(went)
        for name in went:
            await self.env.connections.drop(name)
        if self.head is not None and known:
            await node_commands.set_removed_nodes_down(
                self.env.connections, self.head, [name for name in went if name in known], NO_MACHINE
            )
        if went:
            await self.say(compress(went), "given back", done=True)
        for error in failed.values():
            raise error
