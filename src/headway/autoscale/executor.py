"""Carries out what `power` says, beside the server's other work. What can't be made has an incident (`unmade`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field

from headway.autoscale import planner, provisioning_failures
from headway.cluster.active_head import head_now
from headway.cluster.context import Env
from headway.cluster.monitoring.scrape_targets import tell_prometheus
from headway.cluster.scaling.provision_slot import bring
from headway.cluster.scaling.slot_selection import leaving
from headway.domain.cluster import Cluster
from headway.domain.machine import Machine
from headway.domain.slurm.hostlist import compress
from headway.errors import HeadwayError, Unreachable
from headway.health.context import fault_text
from headway.render.slurm.power_saving import MAKE_S
from headway.slurm import node_commands, node_jobs
from headway.store import StoreAway

Said = list[tuple[str, str]]
LOOK_S = 3.0
AWAY_S = 5.0  # between looks whether the server's database is back
AT_ONCE = 8  # machines that are made for one cluster


@dataclass
class Waker:
    """One cluster's. What it remembers is only how often in a row machines could not be made, or not be given back."""

    cluster: Cluster
    env: Env
    clock: Callable[[], float] = time.time
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # slot -> who makes its machine
    failures: dict[str, int] = field(default_factory=dict)  # group -> in a row
    failed_at: dict[str, float] = field(default_factory=dict)  # group -> when the last of these was
    kept: dict[str, tuple[int, float]] = field(default_factory=dict)  # can't be deleted: (in a row, no try before)
    over: dict[str, int] = field(default_factory=dict)  # group -> times in a row that it would have cost too much
    not_before: dict[str, float] = field(default_factory=dict)  # group -> when the next try may be, in unix seconds
    said: Said = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)  # where -> what was met there at the last try, and said
    untold: bool = False  # Prometheus does not know of a machine yet
    told: frozenset[str] | None = None  # machines that it knows of: others than the waker make some and give some back
    looked: float = 0.0
    resting: bool = False
    barred: frozenset[str] = frozenset()  # nodes that somebody else is at work on: their groups get no machine
    after: Cluster | None = None  # as it is to be when that is over

    async def step(self, *, at_once: bool = False) -> Said:
        """One look; what was done, for people to read."""
        if not any(group.autoscaled for group in self.cluster.groups) or self.resting:
            return []
        if at_once or self.clock() - self.looked >= LOOK_S:
            self.looked = self.clock()
            async with self._met("machines"):
                await self._look()
        said, self.said = self.said, []
        return said

    async def rest(self) -> None:
        """Until nothing of its own is under way: an apply works on the same machines."""
        self.resting = True
        try:
            if self.tasks:
                await asyncio.wait(list(self.tasks.values()))
        except asyncio.CancelledError:
            self.resting = False
            raise

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _met(self, where: str) -> AsyncIterator[None]:
        """What goes wrong here is said once, and stops nothing else. That the server's own database is away is raised."""
        try:
            yield
            self.faults.pop(where, None)
        except HeadwayError as error:
            fault = fault_text(error)
            if self.faults.get(where) != fault:
                self.said.append((where, fault))
            self.faults[where] = fault

    async def _look(self) -> None:
        machines = {machine.name: machine for machine in await self.env.provider.list(self.cluster.name)}
        head = await head_now(self.cluster, self.env, machines)
        if head is None:
            return
        states = await node_commands.read_node_reasons(self.env.connections, head)
        now = self.clock()
        groups = self.cluster.group_of
        waiting = {name for name, at in self.not_before.items() if now < at}
        waiting |= {groups[name].name for name in self.barred if name in groups}
        going = {*await leaving(self.env.provider, self.cluster), *self.barred}
        making = set(self.tasks)
        closed_s = {group.name: planner.wait_s(self.over.get(group.name, 0) + 1) for group in self.cluster.groups}
        jobs = await self._wait_for(head, states)
        wishes = planner.decide(
            self.cluster, states, machines, making, now,
            leaving=going, waiting=waiting, closed_s=closed_s, jobs=jobs, after=self.after,
        )  # fmt: skip
        deeds = list(wishes)
        self._fits(deeds)
        self.kept = {name: one for name, one in self.kept.items() if name in machines}
        free = await self._free(head, [deed.node for deed in deeds if isinstance(deed, planner.GiveBack)])
        for deed in deeds:
            if isinstance(deed, planner.GiveBack) and (
                deed.node not in free or now < self.kept.get(deed.node, (0, 0.0))[1]
            ):
                continue
            if isinstance(deed, planner.GiveBack | planner.Reset) and deed.node in self.barred:
                continue
            async with self._met(_place(deed)):
                if await self._do(deed, head, machines):
                    await self._blame(deed)
        self.said += await provisioning_failures.look(
            self.cluster, self.env.store, states, machines, making, now, going
        )
        there = frozenset(machines) - making
        if self.untold or there != self.told:
            async with self._met("Prometheus"):
                await tell_prometheus(self.cluster, self.env)
                self.untold, self.told = False, there

    async def _wait_for(self, head: Machine, states: Mapping[str, planner.State]) -> Mapping[str, tuple[int, ...]]:
        """Node -> jobs that have it; asked only where what is woken may cost too much."""
        limited = any(file and file.most_usd_per_hour is not None for file in (self.cluster, self.after))
        if not limited or not any(word.endswith("#") for word, _ in states.values()):
            return {}
        return await node_jobs.jobs_by_node(self.env.connections, head)

    def _fits(self, deeds: Collection[planner.Deed]) -> None:
        """A group of which machines are made and none is too dear begins anew."""
        made = {self.cluster.group_of[deed.node].name for deed in deeds if isinstance(deed, planner.Make)}
        for name in made - {deed.group for deed in deeds if isinstance(deed, planner.Close)}:
            self.over.pop(name, None)

    async def _free(self, head: Machine, names: Collection[str]) -> set[str]:
        """Those of these nodes on which no job runs. One that waits for its machine has it among its jobs already: Slurm's
        word for the node tells that nothing runs there yet, and is asked for last."""
        if not names:
            return set()
        busy = await node_jobs.jobs_by_node(self.env.connections, head)
        states = await node_commands.read_node_reasons(self.env.connections, head)
        return {name for name in names if name not in busy or states.get(name, ("", ""))[0].endswith("#")}

    async def _blame(self, deed: planner.Deed) -> None:
        """Machines that came too late for Slurm, or never got to it, and those that would cost too much."""
        if isinstance(deed, planner.Close):
            self.over[deed.group] = self.over.get(deed.group, 0) + 1
            group = next(group for group in self.cluster.groups if group.name == deed.group)
            store, now = self.env.store, self.clock()
            await provisioning_failures.note(self.cluster, store, group, deed.nodes[0], deed.why, now, deed.until)
            return
        if isinstance(deed, planner.Reset):
            why = f"it was not ready within {MAKE_S} s, and Slurm gave it up"
        elif isinstance(deed, planner.GiveBack) and deed.why == planner.STUCK:
            why = deed.why
        else:
            return
        group = self.cluster.group_of[deed.node]
        await provisioning_failures.note(
            self.cluster, self.env.store, group, deed.node, why, self.clock(), self.clock()
        )

    async def _do(self, deed: planner.Deed, head: Machine, machines: dict[str, Machine]) -> bool:
        """Whether it is done."""
        run = self.env.connections
        match deed:
            case planner.Make(node):
                if len(self.tasks) < AT_ONCE:
                    self.tasks[node] = asyncio.create_task(self._make(node, head), name=f"machine {node}")
                    asks = self.cluster.group_of[node].idle_s is not None
                    self.said.append(
                        (node, f"{'Slurm wants it' if asks else 'one is missing'}: a machine is being made")
                    )
            case planner.GiveBack(node, why):
                if not await self._given_back(machines[node]):
                    return False
                self.untold = True
                self.said.append((node, f"given back: {why}"))
            case planner.Close(group, nodes, until, why):
                await node_commands.close_nodes(run, head, nodes, planner.reason(deed))
                self.said.append((group, f"no machine is asked for in the next {until - self.clock():.0f} s: {why}"))
            case planner.Open(nodes):
                await node_commands.open_nodes(run, head, nodes)
                self.said.append((compress(nodes), "may be asked for again"))
            case planner.Reset(node):
                await node_commands.open_nodes(run, head, [node])
                self.said.append((node, "Slurm had given it up; it may be asked for again"))
        return True

    async def _given_back(self, machine: Machine) -> bool:
        """Whether it went. One that its provider can't delete is tried again ever more seldom, and has an incident: somebody
        pays for it."""
        name = machine.name
        try:
            await self.env.provider.delete(machine)
        except HeadwayError as error:
            fault, now = fault_text(error)[:200], self.clock()
            count = self.kept.get(name, (0, 0.0))[0] + 1
            until = now + planner.wait_s(count)
            self.kept[name] = count, until
            self.said.append((name, f"could not be given back (try {count} in a row): {fault}"))
            await provisioning_failures.note_kept(
                self.cluster, self.env.store, name, f"try {count} in a row: {fault}", now, until
            )
            return False
        self.kept.pop(name, None)
        await self.env.connections.drop(name)
        return True

    async def _make(self, node: str, head: Machine) -> None:
        """A machine that did not get there is given back at once: nobody pays for it, and Slurm asks elsewhere."""
        group = self.cluster.group_of[node]
        began, asked = time.monotonic(), self.clock()

        try:
            async with asyncio.timeout(MAKE_S):
                await self._bring(node)
            self.untold = True  # at the next look: a node that works is not given back for that
            for row in (self.failures, self.failed_at, self.not_before):
                row.pop(group.name, None)
            self.said.append((node, f"is ready after {time.monotonic() - began:.0f} s"))
        except HeadwayError as error:
            await self._fail(node, head, asked, fault_text(error)[:200])
        except TimeoutError:
            await self._fail(node, head, asked, f"it was not there after {MAKE_S} s")
        except Exception as error:
            # Whatever it is: without a word to Slurm the next try would follow at once, and the next.
            await self._fail(node, head, asked, f"{type(error).__name__}: {error}".splitlines()[0][:200])
        finally:
            self.tasks.pop(node, None)

    async def _bring(self, node: str) -> None:
        """Waits where the server's database is away: nothing follows of that for the machine."""

        async def say(*_: object, **__: object) -> None: ...

        while True:
            try:
                return await bring(self.cluster, self.env, node, say)
            except StoreAway as error:
                self.said.append((node, f"waits: {error.message.splitlines()[0]}"))
                await asyncio.sleep(AWAY_S)

    async def _fail(self, node: str, head: Machine, asked: float, why: str) -> None:
        """`asked`: when its making began. Machines that were asked for together, as one job's are, are one try."""
        group = self.cluster.group_of[node]
        states: dict[str, planner.State] = {}
        unasked = ""
        try:
            machines = {machine.name: machine for machine in await self.env.provider.list(self.cluster.name)}
            free = node in await self._free(head, [node])
            states = await node_commands.read_node_reasons(self.env.connections, head)
            if node in machines and (not free or node_commands.is_in_service(states.get(node, ("", ""))[0])):
                self.untold = True
                self.said.append((node, f"works, although: {why}"))
                return
        except HeadwayError as error:  # a machine of which nobody knows what runs there is given back later
            unasked = error.message.splitlines()[0]
        now = self.clock()
        if asked > self.failed_at.get(group.name, 0.0):
            self.failures[group.name] = self.failures.get(group.name, 0) + 1
            self.not_before[group.name] = now + planner.wait_s(self.failures[group.name])
            self.failed_at[group.name] = now
        count = self.failures[group.name]
        until = self.not_before[group.name] = max(self.not_before[group.name], now + planner.wait_s(1))
        self.said.append((node, f"could not be made (try {count} in a row): {why}"))
        try:
            await provisioning_failures.note(
                self.cluster, self.env.store, group, node, f"try {count} in a row: {why}", now, until
            )
            if unasked:
                raise Unreachable(unasked)
            if node in machines:
                await self._given_back(machines[node])
            if group.idle_s is not None:
                await self._do(planner.close(group, states, [node], until, why), head, machines)
        except HeadwayError as error:
            self.said.append((node, f"and could not be taken back yet: {error.message.splitlines()[0]}"))


def _place(deed: planner.Deed) -> str:
    """Of what is said of it."""
    match deed:
        case planner.Close(group):
            return group
        case planner.Open(nodes):
            return compress(nodes)
    return deed.node
