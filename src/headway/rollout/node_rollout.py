"""Changes nodes in service, a few at a time. The state of a rollout is in the nodes' reasons in Slurm and in the facts of
their machines, so the next run continues a killed one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import ClassVar

from headway.cluster.changeset_execution import MAKE_AT_ONCE
from headway.cluster.scaling.job_eviction import JobEviction, format_jobs
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import NO_MACHINE_REASON, ROLLOUT_REASON
from headway.domain.slurm.nodes_and_jobs import OUT
from headway.errors import HeadwayError, Refused
from headway.health.context import HealthContext, fault_text
from headway.health.incidents.repair import wait_until_registered
from headway.health.node_tests import run_node_tests
from headway.health.policy.repair_time_limits import BOOT_S
from headway.rollout.rollout_changes import RolloutState
from headway.slurm import node_commands, node_jobs
from headway.store import StoreUnavailable

POLL_S = 2.0
NODES_PER_SLOT = 10  # one node per this many is out of service at a time

CreationLock = Callable[[], AbstractAsyncContextManager[object]]  # under which no other code creates machines


async def read_rollout_state(context: HealthContext, reason_of: str = ROLLOUT_REASON) -> RolloutState:
    """Returns the facts that a rollout decides by. `reason_of`: reason of the nodes that this kind of rollout has drained.
    Raises Unreachable if the controller does not answer."""
    connections, head = context.cluster_context.connections, await context.head()
    machines = await context.machines()
    states = await node_commands.read_node_reasons(connections, head)
    busy = await node_jobs.jobs_by_node(connections, head)
    rolling = {name for name, (_, reason) in states.items() if is_reason(reason, reason_of)}
    out = {
        name: reason if reason != "none" else word
        for name, (word, reason) in states.items()
        if name not in rolling and not node_commands.is_in_service(word)
    }
    return RolloutState(machines, busy, frozenset(rolling), out)


@dataclass
class NodeRollout(ABC):
    """A change of nodes, a few at a time: each node is drained, changed once its jobs have ended, tested, and returned
    to service. The first node has to pass its tests before others are drained. What is changed is in a subclass.

    `until`: unix seconds from which jobs are requeued. `lock`: see `CreationLock`."""

    context: HealthContext
    report: ReportProgress
    lock: CreationLock
    other_operation_waits: OperationWaits
    until: float | None = None
    first_passed: bool = False  # one node has passed its tests
    drains_all: bool = False  # all nodes are drained from the start, so that no job gets changed and unchanged nodes
    controller_away: bool = False  # the controller did not answer when it was last asked
    reported_waits: tuple[object, ...] = ()
    eviction: JobEviction | None = None
    reason: ClassVar[str] = ROLLOUT_REASON  # Slurm's reason for the nodes that it drains

    @property
    @abstractmethod
    def target(self) -> str:
        """Names what nodes change to, as in "is of TARGET"."""

    @property
    def changed(self) -> str:
        """Says of a node that it is changed."""
        return f"is of {self.target}"

    @property
    def way_back(self) -> str:
        """Says how to undo the change, as the end of a hint; "" if it can't be undone."""
        return ""

    async def prepare(self, seen: RolloutState) -> None:  # noqa: B027 (not every change needs it)
        """Is called with each state before anything is decided by it."""

    @abstractmethod
    async def nodes_due(self, seen: RolloutState) -> tuple[str, ...]:
        """Returns the nodes still to change, those already begun first, then those without jobs."""

    @abstractmethod
    async def nodes_left_out(self, seen: RolloutState) -> Mapping[str, str]:
        """Returns the unchanged nodes that are out of service for another reason, with that reason."""

    @abstractmethod
    async def change_node(self, name: str) -> None:
        """Changes one drained node without jobs, unless it is changed already. Raises HeadwayError."""

    async def first_node_passed(self) -> None:  # noqa: B027 (not every change needs it)
        """Is called once the first node has passed its tests."""

    async def nodes_failed(self, seen: RolloutState, failed: Collection[str]) -> str:  # noqa: ARG002
        """Is called when nodes failed. Returns what happens to the other nodes. `seen`: the state before the change."""
        return f"{compress(failed)} stays drained, no other node is changed"

    async def roll_all(self) -> bool:
        """Rolls all nodes. Returns False if another operation waits, True when all are done."""
        while True:
            seen = await self._read_state()
            if await self.other_operation_waits():
                await self.report("roll", "another operation runs first", level="warning", done=True)
                return False
            if seen is not None:
                left = await self.nodes_due(seen)
                if not left:
                    await self._report_left_out(seen)
                    return True
                if await self._step(seen, left):
                    continue
            await self.context.sleep(POLL_S)

    async def _read_state(self) -> RolloutState | None:
        """Returns the rollout state, None while the controller does not answer. A rollout may take days, and a head may
        be restarted meanwhile."""
        try:
            seen = await read_rollout_state(self.context, self.reason)
        except HeadwayError as error:
            await self._report_controller_away(error)
            return None
        await self.prepare(seen)
        return seen

    async def _report_controller_away(self, error: HeadwayError) -> None:
        if not self.controller_away:
            await self.report("roll", f"waits for the controller: {error.first_line}", level="warning")
        self.controller_away = True

    async def _step(self, seen: RolloutState, left: Sequence[str]) -> bool:
        """Does what is due now. Returns whether anything was done, so that the state has to be read again at once."""
        width = self._nodes_at_once(len(self.context.cluster.slot_names))
        going = [name for name in left if name in seen.rolling]
        empty = [name for name in going if name not in seen.busy][:width]
        if empty:
            self.controller_away = False
            await self._change(empty)
            return True
        try:
            done = await self._drain_and_evict(seen, left, going, width)
        except StoreUnavailable:
            raise  # the server's database is no part of a machine
        except HeadwayError as error:
            await self._report_controller_away(error)
            return False
        self.controller_away = False
        return done

    async def _drain_and_evict(self, seen: RolloutState, left: Sequence[str], going: Sequence[str], width: int) -> bool:
        """Drains the next nodes and, after the deadline, requeues their jobs. Returns whether anything was done."""
        late = self.until is not None and self.context.clock() >= self.until
        drained = self._to_drain(seen, left, going, width, late=late)
        if drained:
            await node_commands.drain_nodes(
                self.context.cluster_context.connections, await self.context.head(), drained, self.reason
            )
            return True
        jobs = {name: seen.busy[name] for name in left if name in seen.busy}
        away = await self._job_eviction()
        if late:
            return not await away.evict_jobs({name: jobs[name] for name in going[:width]})
        if self.until is not None:
            await away.warn_jobs(jobs, self.until)
        await self._report_waits({name: jobs[name] for name in going})
        return False

    def _to_drain(
        self, seen: RolloutState, left: Sequence[str], going: Sequence[str], width: int, *, late: bool
    ) -> list[str]:
        """Returns the nodes to drain now: idle nodes first, otherwise as many busy ones as may be out of service at a
        time. Returns all nodes after the deadline, so that requeued jobs never start on a node that is still to be
        rolled, and with mixed Slurm versions, so that no job gets nodes of both."""
        others = [name for name in left if name not in seen.rolling]
        idle = [name for name in others if name not in seen.busy]
        if self.drains_all or (late and self.first_passed):
            return others
        return idle[:width] or others[: max(0, width - len(going))]

    def _nodes_at_once(self, count: int) -> int:
        """Returns how many nodes may be out of service at a time."""
        if not self.first_passed:
            return 1
        return MAKE_AT_ONCE if self.drains_all else max(1, min(MAKE_AT_ONCE, count // NODES_PER_SLOT))

    async def _job_eviction(self) -> JobEviction:
        head = await self.context.head()
        if self.eviction is None or self.eviction.head != head:
            context = self.context
            why = "its node is changed"
            self.eviction = JobEviction(
                context.cluster, context.cluster_context, self.report, head, why, context.clock, context.sleep
            )
        return self.eviction

    async def _change(self, names: Sequence[str]) -> None:
        """Rolls those of the nodes that are still drained for the rollout and idle, under the lock for creating
        machines. While it waited for the lock, other code may have returned a node to service. Raises Refused naming
        the nodes that failed."""
        async with self.lock():
            seen = await self._read_state()
            if seen is None:
                return
            names = [name for name in names if name in seen.rolling and name not in seen.busy]
            faults = await asyncio.gather(*(self._roll_node(name, seen) for name in names), return_exceptions=True)
        for fault in faults:  # all tasks have ended here, so no task works on a machine after the lock is released
            if isinstance(fault, BaseException):
                raise fault
        failed = {name: fault for name, fault in zip(names, faults, strict=True) if fault}
        if failed:
            others = await self.nodes_failed(seen, failed.keys())
            raise Refused(
                f"the roll stops; failed on {self.target}: "
                + "; ".join(f"{name}: {fault}" for name, fault in failed.items()),
                hint=f"{others}; headway roll {self.context.cluster.name} tries again{self.way_back}",
            )
        if names and not self.first_passed:
            self.first_passed = True
            await self.first_node_passed()

    async def _roll_node(self, name: str, seen: RolloutState) -> str:
        """Rolls one node. Returns what went wrong, "" once the node is done."""
        context, began = self.context, self.context.clock()
        if not self._machine_is_wanted(name, seen):
            run, head = context.cluster_context.connections, await context.head()
            await node_commands.set_removed_nodes_down(run, head, [name], NO_MACHINE_REASON)
            return ""
        try:
            await self.change_node(name)
            fault = await wait_until_registered(context, name, BOOT_S)
        except HeadwayError as error:
            fault = fault_text(error)
        if not fault:
            await self.report(name, "is being tested")
            fault = (await run_node_tests(context, name, thorough=not self.first_passed)).fault
        connections, head = context.cluster_context.connections, await context.head()
        if fault:
            states, reason = await context.node_state(name)
            if not states & OUT or self._is_ours(reason):
                await node_commands.drain_node(connections, head, name, f"{self.reason}: {fault}")
            await self.report(name, fault, level="error", done=True)
            return fault
        kept = await node_commands.resume_node_if(connections, head, name, self._is_ours)
        if kept:
            words = f"{self.changed} and has passed its tests; it stays out of service: {kept}"
            await self.report(name, words, level="warning", done=True)
            return ""
        # slurmctld may set a node that comes back quickly down only now, because a request to its old machine was never
        # answered.
        await wait_until_registered(context, name, BOOT_S)
        words = f"{self.changed}, has passed its tests and is in service"
        await self.report(name, words, done=True, seconds=context.clock() - began)
        return ""

    def _is_ours(self, reason: str) -> bool:
        return is_reason(reason, self.reason)

    def _machine_is_wanted(self, name: str, seen: RolloutState) -> bool:
        """Returns whether the slot should have a machine. If a killed rollout had deleted the machine, the cluster may
        have enough machines by now."""
        return name in seen.machines or name in choose_slots(self.context.cluster, {*seen.machines, name})

    async def _report_waits(self, jobs: dict[str, tuple[int, ...]]) -> None:
        if self.reported_waits == (found := tuple(jobs.items())):
            return
        self.reported_waits = found
        left = "" if self.until is None else f", {max(0, round(self.until - self.context.clock()))} s at most"
        for name, numbers in jobs.items():
            await self.report(name, f"drained; waits for {format_jobs(numbers)}{left}")

    async def _report_left_out(self, seen: RolloutState) -> None:
        for name, reason in (await self.nodes_left_out(seen)).items():
            await self.report(name, f"is out of service and stays unchanged: {reason}", level="warning", done=True)
        await self.report("roll", f"every node in service {self.changed}", done=True)


def is_reason(reason: str, of_kind: str = ROLLOUT_REASON) -> bool:
    """Returns whether a node's reason in Slurm says that this kind of rollout has drained it, with or without an
    error."""
    return reason == of_kind or reason.startswith(f"{of_kind}:")


def reason_is_rollout(reason: str) -> bool:
    """Returns whether a node's reason in Slurm says that a rollout of the image has drained it."""
    return is_reason(reason)


async def return_unchanged_nodes(
    context: HealthContext,
    report: ReportProgress,
    nodes: Collection[str],
    unchanged: Collection[str],
    *,
    kind: str,
    back: str,
) -> None:
    """Returns to service those of the nodes that a rollout has drained and not changed yet; the others stay drained.
    `kind`: the rollout's reason in Slurm; `back`: what is said of a node that is in service again."""
    connections, head = context.cluster_context.connections, await context.head()
    reasons = await node_commands.read_node_reasons(connections, head)
    for name in sorted(nodes):
        if name in unchanged and reasons[name][1] == kind:
            kept = await node_commands.resume_node_if(connections, head, name, lambda reason: is_reason(reason, kind))
            await report(name, f"stays out of service: {kept}" if kept else back, done=True)
        else:
            await report(name, "stays drained: headway roll continues with it", level="warning", done=True)
