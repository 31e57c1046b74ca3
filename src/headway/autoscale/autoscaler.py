"""Carries out the planner's actions in parallel with the server's other work. Failures become incidents
(`provisioning_incidents`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from headway.autoscale import planner, provisioning_incidents
from headway.autoscale.held_slots import HoldSlots, plan_held_slots
from headway.autoscale.retry_delays import CreationBackoff, retry_delay_s
from headway.autoscale.slot_prices import SlotPrices
from headway.cluster.active_head import active_head
from headway.cluster.context import ClusterContext
from headway.cluster.monitoring.scrape_targets import update_scrape_targets
from headway.cluster.scaling.provision_slot import provision_machines
from headway.cluster.scaling.reclaim_notices import reclaim_notices
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, Unreachable
from headway.health.context import fault_text
from headway.providers.base import RentingProvider
from headway.render.slurm.hooks.power_saving import ready_timeout_s
from headway.slurm import node_commands, node_jobs
from headway.store import StoreUnavailable

Messages = list[tuple[str, str]]
CHECK_EVERY_S = 3.0
_FAULT_CHARACTERS = 400  # of the reason why a machine could not be created
_CLOUD_CLOCK_S = 30.0  # seconds that a cloud's clock may be behind
STORE_RETRY_S = 5.0  # seconds between tries while the server's database is unavailable
CREATIONS_AT_ONCE = 8  # tasks that create machines for one cluster at the same time


@dataclass
class Autoscaler:
    """Scales one cluster. It remembers only how often in a row creating or deleting machines has failed; the rest is
    read again in each pass."""

    cluster: Cluster
    context: ClusterContext
    clock: Callable[[], float] = time.time
    # slot -> task that creates its machine; rented machines of one job have one task
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    backoff: CreationBackoff = field(default_factory=CreationBackoff)
    # slot -> when its machine was set up; a rented one of which that is not known has time to register from `began_at` on
    ready_at: dict[str, float] = field(default_factory=dict)
    began_at: float = 0.0
    undeletable: dict[str, tuple[int, float]] = field(
        default_factory=dict
    )  # machine that can't be deleted -> (failed tries in a row, time before which there is no further try)
    over_budget: dict[str, int] = field(
        default_factory=dict
    )  # group -> times in a row that it would have exceeded the cost limit
    messages: Messages = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)  # subject -> fault of the last try, which has been reported
    prometheus_outdated: bool = False  # Prometheus's target file has to be written again
    # the machines in the file as last written; an apply changes machines too
    prometheus_machines: frozenset[str] | None = None
    checked_at: float = 0.0
    paused: bool = False
    busy_nodes: frozenset[str] = frozenset()  # nodes that another operation works on; their groups get no new machine
    jobs: tuple[JobState, ...] | None = None  # the queue as last read; None: slots that are held stay held
    slot_prices: SlotPrices = field(default_factory=SlotPrices)
    next_file: Cluster | None = None  # the cluster file that applies once no node is in busy_nodes

    async def scale(self, *, at_once: bool = False) -> Messages:
        """Runs one pass if it is due. Returns messages for users."""
        if not any(group.autoscaled for group in self.cluster.groups) or self.paused:
            return []
        if at_once or self.clock() - self.checked_at >= CHECK_EVERY_S:
            self.checked_at = self.clock()
            async with self._report_faults("machines"):
                await self._scale_once()
        messages, self.messages = self.messages, []
        return messages

    async def pause(self) -> None:
        """Waits until no machine is being created, and starts no further one, because an apply works on the same
        machines."""
        self.paused = True
        try:
            if self.tasks:
                await asyncio.wait(list(self.tasks.values()))
        except asyncio.CancelledError:
            self.paused = False
            raise

    async def close(self) -> None:
        """Cancels the creation of machines and waits until the tasks have ended."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _report_faults(self, where: str) -> AsyncIterator[None]:
        """Reports a HeadwayError of the block once and suppresses it, so that it stops nothing else. Raises
        StoreUnavailable, because then the server's own database is unavailable."""
        try:
            yield
            self.faults.pop(where, None)
        except HeadwayError as error:
            fault = fault_text(error)
            if self.faults.get(where) != fault:
                self.messages.append((where, fault))
            self.faults[where] = fault

    async def _scale_once(self) -> None:
        """Runs one pass: plans the actions and carries them out."""
        # First: a cloud may answer late, and the machines and states must not be older than the plan.
        prices = await self.slot_prices.read(self.cluster, self.context.provider, self.clock())
        machines = await self.context.machines(self.cluster.name)
        head = await active_head(self.cluster, self.context, machines)
        if head is None:
            return
        states = await node_commands.read_node_reasons(self.context.connections, head)
        now = self.clock()
        groups = self.cluster.group_of
        waiting = self.backoff.waiting_groups(now)
        waiting |= {groups[name].name for name in self.busy_nodes if name in groups}
        going = {*await reclaim_notices(self.context.provider, self.cluster), *self.busy_nodes}
        making = set(self.tasks)
        closed_s = {group.name: retry_delay_s(self.over_budget.get(group.name, 0) + 1) for group in self.cluster.groups}
        begun = await self._begun()
        async with self._report_faults("held nodes"):
            await self._hold_slots(head, states, {*machines, *making, *begun}, waiting, prices)
        jobs = await self._waiting_jobs(head, states)
        planned = planner.plan_scaling(
            self.cluster, states, machines, making, now,
            leaving=going, backing_off=waiting, closed_s=closed_s, jobs=jobs, next_file=self.next_file,
            begun=begun, ready_at=self._ready_at(machines), prices=prices,
        )  # fmt: skip
        actions = list(planned)
        self._forget_over_budget(actions)
        self.undeletable = {name: tries for name, tries in self.undeletable.items() if name in {*machines, *begun}}
        free = await self._idle_nodes(
            head, [action.node for action in actions if isinstance(action, planner.DeleteMachine)]
        )
        for action in actions:
            if isinstance(action, planner.DeleteMachine) and (
                action.node not in free or now < self.undeletable.get(action.node, (0, 0.0))[1]
            ):
                continue
            if isinstance(action, planner.DeleteMachine | planner.ResetNode) and action.node in self.busy_nodes:
                continue
            async with self._report_faults(_subject(action)):
                if await self._carry_out(action, head, machines):
                    await self._note_failure(action)
        self.messages += await provisioning_incidents.close_resolved(
            self.cluster, self.context.store, states, machines, making, now, going
        )
        there = frozenset(machines) - making
        if self.prometheus_outdated or there != self.prometheus_machines:
            async with self._report_faults("Prometheus"):
                await update_scrape_targets(self.cluster, self.context)
                self.prometheus_outdated, self.prometheus_machines = False, there

    async def _hold_slots(
        self,
        head: Machine,
        states: Mapping[str, planner.StateAndReason],
        there: Collection[str],
        backing_off: Collection[str],
        prices: Mapping[str, Decimal],
    ) -> None:
        """Holds and releases powered-down slots, by how long jobs have waited and by the price limits of groups."""
        if self.jobs is None:
            return
        run = self.context.connections
        for action in plan_held_slots(self.cluster, states, there, self.jobs, self.clock(), backing_off, prices):
            if isinstance(action, HoldSlots):
                await node_commands.drain_nodes(run, head, action.nodes, action.reason)
            else:
                await node_commands.undrain_nodes(run, head, action.nodes)
                self.messages.append((compress(action.nodes), "Slurm may power it up for jobs that wait"))

    def _ready_at(self, machines: Collection[str]) -> dict[str, float]:
        """Returns since when each machine should register with Slurm, where its start does not say it. A rented machine is
        set up for minutes after its start."""
        self.ready_at = {name: at for name, at in self.ready_at.items() if name in machines}
        self.began_at = self.began_at or self.clock()
        rented = [name for name in machines if self.cluster.provider_of(name).rents_machines]
        unknown = dict.fromkeys(rented, self.began_at)
        return unknown | self.ready_at

    async def _begun(self) -> frozenset[str]:
        """Returns the slots for which a machine is rented that is no machine of the cluster yet."""
        provider = self.context.provider
        return await provider.begun(self.cluster.name) if isinstance(provider, RentingProvider) else frozenset()

    async def _waiting_jobs(
        self, head: Machine, states: Mapping[str, planner.StateAndReason]
    ) -> Mapping[str, tuple[int, ...]]:
        """Returns the jobs allocated to each node. They are read only if a node powers up, and the cluster has a cost
        limit or rents its machines; otherwise returns {}."""
        limited = any(file and file.max_usd_per_hour is not None for file in (self.cluster, self.next_file))
        if not (limited or self.cluster.rents_machines) or not any(word.endswith("#") for word, _ in states.values()):
            return {}
        return await node_jobs.jobs_by_node(self.context.connections, head)

    def _forget_over_budget(self, actions: Collection[planner.ScalingAction]) -> None:
        """Resets the count of exceeded cost limits for groups that get a machine and have no slot to close."""
        made = {
            self.cluster.group_of[action.nodes[0]].name
            for action in actions
            if isinstance(action, planner.CreateMachines)
        }
        for name in made - {action.group for action in actions if isinstance(action, planner.CloseSlots)}:
            self.over_budget.pop(name, None)

    async def _idle_nodes(self, head: Machine, names: Collection[str]) -> set[str]:
        """Returns which of these nodes run no job. A node that is still powering up already has its jobs assigned but
        runs nothing yet, so its state in Slurm is read last."""
        if not names:
            return set()
        busy = await node_jobs.jobs_by_node(self.context.connections, head)
        states = await node_commands.read_node_reasons(self.context.connections, head)
        return {name for name in names if name not in busy or states.get(name, ("", ""))[0].endswith("#")}

    async def _note_failure(self, action: planner.ScalingAction) -> None:
        """Records a failure in an incident: machines that were not ready in time for Slurm or never registered, and
        machines that would exceed the cost limit."""
        if isinstance(action, planner.CloseSlots):
            self.over_budget[action.group] = self.over_budget.get(action.group, 0) + 1
            group = next(group for group in self.cluster.groups if group.name == action.group)
            store, now = self.context.store, self.clock()
            await provisioning_incidents.note_failed_creation(
                self.cluster, store, group, action.nodes[0], action.why, now, action.until
            )
            return
        if isinstance(action, planner.ResetNode):
            why = f"it was not ready within {ready_timeout_s(self.cluster)} s, so Slurm marked it DOWN"
        elif isinstance(action, planner.DeleteMachine) and action.why == planner.NOT_REGISTERED:
            why = action.why
        else:
            return
        group = self.cluster.group_of[action.node]
        await provisioning_incidents.note_failed_creation(
            self.cluster, self.context.store, group, action.node, why, self.clock(), self.clock()
        )

    async def _carry_out(self, action: planner.ScalingAction, head: Machine, machines: dict[str, Machine]) -> bool:
        """Carries out one action. Returns whether it is done."""
        run = self.context.connections
        match action:
            case planner.CreateMachines(nodes):
                rents = self.cluster.provider_of(nodes[0]).rents_machines
                for some in [nodes] if rents else [(node,) for node in nodes]:
                    self._begin_creation(some, head)
            case planner.DeleteMachine(node, why):
                if not await self._delete_machine(node, machines.get(node)):
                    return False
                self.prometheus_outdated = True
                self.messages.append((node, f"machine returned: {why}"))
            case planner.CloseSlots(group, nodes, until, why):
                await node_commands.close_nodes(run, head, nodes, planner.close_reason(action))
                self.messages.append(
                    (group, f"no machine is requested in the next {until - self.clock():.0f} s: {why}")
                )
            case planner.OpenSlots(nodes):
                await node_commands.open_nodes(run, head, nodes)
                self.messages.append((compress(nodes), "Slurm may use it again"))
            case planner.ResetNode(node):
                await node_commands.open_nodes(run, head, [node])
                self.messages.append((node, "Slurm had marked it DOWN; it can be used again"))
        return True

    def _begin_creation(self, nodes: Sequence[str], head: Machine) -> None:
        """Starts a task that creates the machines of these slots, unless too many run."""
        if len(set(self.tasks.values())) >= CREATIONS_AT_ONCE:
            return
        task = asyncio.create_task(self._create_machines(nodes, head), name=f"machines {compress(nodes)}")
        self.tasks |= dict.fromkeys(nodes, task)
        asks = self.cluster.group_of[nodes[0]].idle_s is not None
        for node in nodes:
            self.messages.append(
                (node, f"{'Slurm needs it' if asks else 'a node is missing'}: its machine is being created")
            )

    async def _delete_machine(self, name: str, machine: Machine | None) -> bool:
        """Deletes a machine and returns whether that worked. `machine` None: one that is rented and not a machine of the
        cluster yet. If the provider can't delete it, the pauses between tries grow, and an incident is opened, because the
        machine costs money."""
        provider = self.context.provider
        try:
            if machine is not None:
                await provider.delete(machine)
            elif isinstance(provider, RentingProvider):
                await provider.give_up(self.cluster.name, name)
        except HeadwayError as error:
            fault, now = fault_text(error)[:200], self.clock()
            count = self.undeletable.get(name, (0, 0.0))[0] + 1
            until = now + retry_delay_s(count)
            self.undeletable[name] = count, until
            self.messages.append((name, f"machine could not be returned (try {count} in a row): {fault}"))
            await provisioning_incidents.note_failed_deletion(
                self.cluster, self.context.store, name, f"try {count} in a row: {fault}", now, until
            )
            return False
        self.undeletable.pop(name, None)
        await self.context.connections.drop(name)
        return True

    async def _create_machines(self, nodes: Sequence[str], head: Machine) -> None:
        """Creates the machines of slots of one group. If that fails, those that do not work are deleted at once, so that they
        cost nothing and Slurm powers up other nodes."""
        group = self.cluster.group_of[nodes[0]]
        began, requested_at, most_s = time.monotonic(), self.clock(), ready_timeout_s(self.cluster)

        try:
            async with asyncio.timeout(most_s):
                await self._provision(nodes)
            # the file is written in the next pass: a failure to write it must not cause the deletion of a working node
            self.prometheus_outdated = True
            self.backoff.record_success(group.name)
            self.ready_at |= dict.fromkeys(nodes, self.clock())
            self.messages += [(node, f"is ready after {time.monotonic() - began:.0f} s") for node in nodes]
        except HeadwayError as error:
            await self._handle_failed_creation(nodes, head, requested_at, fault_text(error)[:_FAULT_CHARACTERS])
        except TimeoutError:
            await self._handle_failed_creation(nodes, head, requested_at, f"its machine did not exist after {most_s} s")
        except Exception as error:
            # Any error closes the slots in Slurm, otherwise the next tries would follow without a pause.
            await self._handle_failed_creation(
                nodes, head, requested_at, f"{type(error).__name__}: {error}".splitlines()[0][:_FAULT_CHARACTERS]
            )
        finally:
            for node in nodes:
                self.tasks.pop(node, None)

    async def _provision(self, nodes: Sequence[str]) -> None:
        """Creates the machines. While the server's database is unavailable it waits, because that is no fault of the
        machines. Each offer of a cloud that can't be had is a step of the group's incident."""
        # A machine that is launched next ends the incident, also if the cloud's clock is behind.
        began_at = self.clock() - _CLOUD_CLOCK_S

        async def report(step: str, text: str, *, level: str = "info", done: bool = False, **_: object) -> None:
            if not rents or level == "error" or (level == "info" and done):
                return
            self.messages.append((step, text))
            if level == "warning" and not done:
                group = self.cluster.group_of[nodes[0]]
                await provisioning_incidents.note_failed_creation(
                    self.cluster, self.context.store, group, nodes[0], text, began_at, began_at
                )

        rents = self.cluster.provider_of(nodes[0]).rents_machines
        while True:
            try:
                return await provision_machines(self.cluster, self.context, nodes, report)
            except StoreUnavailable as error:
                self.messages.append((compress(nodes), f"waits: {error.first_line}"))
                await asyncio.sleep(STORE_RETRY_S)

    async def _handle_failed_creation(self, nodes: Sequence[str], head: Machine, requested_at: float, why: str) -> None:
        """Reports a failed creation, deletes the machines that do not work and closes the slots of an autoscaled group.
        `requested_at`: when the creation began, in unix seconds. Machines requested together, such as those of one job, count
        as one try."""
        group = self.cluster.group_of[nodes[0]]
        machines: dict[str, Machine] = {}
        states: dict[str, planner.StateAndReason] = {}
        unasked = ""
        try:
            machines = await self.context.machines(self.cluster.name)
            free = await self._idle_nodes(head, nodes)
            states = await node_commands.read_node_reasons(self.context.connections, head)
            in_use = [name for name in nodes if name in machines and (name not in free or _in_service(states, name))]
            if in_use:
                self.prometheus_outdated = True
                self.messages.append((compress(in_use), f"works, although: {why}"))
            nodes = [name for name in nodes if name not in in_use]
            if not nodes:
                return
        # without an answer it is not known whether jobs run there; the machines are deleted later
        except HeadwayError as error:
            unasked = error.first_line
        now, named = self.clock(), compress(nodes)
        count, until = self.backoff.record_failure(group.name, requested_at, now)
        self.messages.append((named, f"machine could not be created (try {count} in a row): {why}"))
        try:
            await provisioning_incidents.note_failed_creation(
                self.cluster, self.context.store, group, nodes[0], f"try {count} in a row: {why}", now, until
            )
            if unasked:
                raise Unreachable(unasked)
            begun = await self._begun()
            for name in nodes:
                if name in machines or name in begun:
                    await self._delete_machine(name, machines.get(name))
            if group.idle_s is not None:
                await self._carry_out(planner.close_slots(group, states, nodes, until, why), head, machines)
        except StoreUnavailable:  # no fault of the machine; the next pass tries again
            raise
        except HeadwayError as error:
            self.messages.append((named, f"and could not be deleted yet: {error.first_line}"))


def _in_service(states: Mapping[str, planner.StateAndReason], name: str) -> bool:
    return node_commands.is_in_service(states.get(name, ("", ""))[0])


def _subject(action: planner.ScalingAction) -> str:
    """Returns the group or nodes that a message about the action is about."""
    match action:
        case planner.CloseSlots(group):
            return group
        case planner.OpenSlots(nodes) | planner.CreateMachines(nodes):
            return compress(nodes)
    return action.node
