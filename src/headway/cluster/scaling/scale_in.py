"""Removes machines from a running cluster: nodes are drained, their jobs end or are requeued, and the machines are
deleted. The state is in the nodes' reasons in Slurm, so the next run continues a killed one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.cluster.context import ClusterContext
from headway.cluster.monitoring.scrape_targets import update_scrape_targets
from headway.cluster.scaling.job_eviction import POLL_S, JobEviction, format_jobs
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import NO_MACHINE_REASON, SCALE_IN_REASON, reason_before_scale_in
from headway.errors import HeadwayError, Refused
from headway.slurm import node_commands, node_jobs

LATE_JOB_S = 20.0  # seconds that a job which started right before the drain gets to end


async def keep_node(context: ClusterContext, head: Machine, name: str, reason: str) -> None:
    """Restores a node that was being scaled in: in service, or drained with its earlier reason. `reason`: its present
    reason in Slurm."""
    before = reason_before_scale_in(reason) if reason.startswith(SCALE_IN_REASON) else ""
    if before:
        await node_commands.drain_node(context.connections, head, name, before)
    else:
        await node_commands.resume_node(context.connections, head, name)


class YieldedToOperation(Exception):
    """Raised when another operation must run first. Nodes stay drained, and the next run continues with them."""


class BackgroundTasks(Protocol):
    """Work that continues during the wait for jobs on nodes that are to be removed; the wait may take days."""

    async def step(self, names: Collection[str]) -> None:
        """Runs one pass, without touching these nodes."""
        ...

    async def other_operation_waits(self) -> bool:
        """Returns whether another operation should go first."""
        ...

    async def finish_tasks(self) -> None:
        """Waits until none of its tasks runs."""
        ...

    async def close(self) -> None:
        """Cancels its running tasks."""
        ...


@dataclass
class MachineRemoval:
    """Removes machines. With `deadline` None jobs must not be requeued."""

    cluster: Cluster
    context: ClusterContext
    report: ReportProgress
    head: Machine | None
    machines: Mapping[str, Machine]
    deadline: Deadline | None = None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    before_release: Callable[[Machine], Awaitable[None]] | None = None  # called for a machine before it is deleted
    waiting_work: BackgroundTasks | None = None
    steps_aside: bool = False  # let other operations go first while jobs are waited for
    waited: bool = False  # `waiting_work` has run, so machines may have been created or deleted meanwhile
    keeps_slot: bool = False  # another machine gets the slot, so the provider keeps its place
    eviction: JobEviction | None = None
    gone: set[str] = field(default_factory=set)

    async def remove_machines(self, names: Sequence[str]) -> None:
        """Waits until none of these nodes has a machine. Raises Refused, with the nodes back in service, if jobs run
        there without a deadline, and YieldedToOperation if another operation must run first."""
        head = self.head
        if head is None or head.state is not MachineState.RUNNING:
            self._check_no_machine_runs(names)
            await self._delete_machines(names)
            return
        self.eviction = JobEviction(
            self.cluster, self.context, self.report, head, "its node is removed", self.clock, self.sleep
        )
        nodes = None if self.deadline is None else self.deadline.nodes
        meant = [name for name in names if nodes is None or name in nodes]
        await self._empty_nodes(head, meant, self.deadline.at if self.deadline else None)
        await self._empty_nodes(head, [name for name in names if name not in meant], None)

    async def _empty_nodes(self, head: Machine, names: Sequence[str], until: float | None) -> None:
        """Drains the nodes and deletes each machine once no job runs on it. `until`: deadline in unix seconds; None:
        raises Refused if jobs still run after LATE_JOB_S."""
        known: tuple[str, ...] = ()  # the nodes that Slurm knows
        ends = self.clock() + LATE_JOB_S if until is None else until
        reported: dict[str, tuple[int, ...]] = {}
        while left := [name for name in names if name not in self.gone]:
            known = await self._drain(head, left)
            busy = await node_jobs.jobs_by_node(self.context.connections, head)
            idle = [name for name in left if name not in busy]
            await self._delete_machines(idle, known)
            if idle and len(idle) < len(left) and until is not None and not self.keeps_slot:
                await self._update_prometheus(head)
            jobs = {name: busy[name] for name in left if name in busy}
            if jobs and jobs != reported and until is not None:
                reported = jobs
                await self._report_waits(jobs, ends)
            if jobs and self.clock() >= ends:
                if until is None:
                    await self._refuse_with_jobs(head, jobs)
                await self._evict_jobs(head, jobs)
            elif jobs and until is not None:
                assert self.eviction is not None
                await self.eviction.warn_jobs(jobs, ends)
            if jobs and self.waiting_work is not None and until is not None:
                self.waited = True
                await self.waiting_work.step(tuple(jobs))
                if self.steps_aside and await self.waiting_work.other_operation_waits():
                    raise YieldedToOperation
            if jobs:
                await self.sleep(POLL_S)

    async def _update_prometheus(self, head: Machine) -> None:
        """Removes the deleted machines from Prometheus's targets, because waiting for the other nodes may take days and
        missing machines would raise alerts."""
        try:
            await update_scrape_targets(self.cluster, self.context)
        except HeadwayError as error:
            await self.report(head.name, f"Prometheus does not know of it: {error.first_line}", level="warning")

    async def _drain(self, head: Machine, names: Sequence[str]) -> tuple[str, ...]:
        """Drains the nodes. Called in each pass, because a wait may take days and a person may return a node meanwhile.
        A reason set by a person is kept behind Headway's, in case the node stays. Returns the nodes that Slurm
        knows."""
        run, serving = self.context.connections, list[str]()
        states = await node_commands.read_node_reasons(run, head)
        known = tuple(name for name in names if name in states)
        for name in known:
            word, reason = states[name]
            if node_commands.is_in_service(word) or reason in ("", "none", NO_MACHINE_REASON):
                serving.append(name)
            elif not reason.startswith(SCALE_IN_REASON):
                await node_commands.drain_node(run, head, name, f"{SCALE_IN_REASON}: {reason}")
        await node_commands.drain_nodes(run, head, serving, SCALE_IN_REASON)
        return known

    def _check_no_machine_runs(self, names: Sequence[str]) -> None:
        """Raises Refused if one of the machines runs. Jobs continue without the controller, and without it Headway
        can't tell whether a running machine is idle."""
        if self.head is None:
            return  # Slurm's state is lost with the head, so no job can continue
        running = [name for name in names if self.machines[name].state is not MachineState.STOPPED]
        if running:
            raise Refused(
                f"{self.head.name} is down, so Headway can't check for jobs on {compress(running)}",
                hint="run headway apply with the previous number of nodes, then remove nodes",
            )

    async def _report_waits(self, jobs: Mapping[str, tuple[int, ...]], ends: float) -> None:
        left_s = max(0, round(ends - self.clock()))
        for name, numbers in jobs.items():
            await self.report(name, f"drained; waits for {format_jobs(numbers)}, {left_s} s at most")

    async def _refuse_with_jobs(self, head: Machine, jobs: Mapping[str, tuple[int, ...]]) -> None:
        """Restores the nodes with jobs and raises Refused."""
        states = await node_commands.read_node_reasons(self.context.connections, head)
        for name in jobs:
            await keep_node(self.context, head, name, states.get(name, ("", SCALE_IN_REASON))[1])
        what = "; ".join(f"{name} runs {format_jobs(numbers)}" for name, numbers in jobs.items())
        raise Refused(
            f"nodes with jobs would be removed: {what}",
            hint="give the time that jobs may continue before they are requeued: --deadline 10:00",
        )

    async def _evict_jobs(self, head: Machine, jobs: Mapping[str, tuple[int, ...]]) -> None:
        """Requeues the jobs after the deadline and deletes the machines. A node on which another job has started
        meanwhile stays for the next pass."""
        assert self.eviction is not None
        left = await self.eviction.evict_jobs(jobs)
        known = await self._drain(head, list(jobs))
        busy = await node_jobs.jobs_by_node(self.context.connections, head)
        rid = [name for name in jobs if name not in left and set(busy.get(name, ())) <= set(jobs[name])]
        await self._delete_machines(rid, known)

    async def _delete_machines(self, names: Sequence[str], known: Sequence[str] = ()) -> None:
        """Deletes the machines of idle nodes, then marks their slots in Slurm as empty. A machine that its provider
        can't delete stays drained, and its error is raised after the others are deleted."""
        if not names:
            return
        if self.before_release is not None:
            await asyncio.gather(*(self.before_release(self.machines[name]) for name in names))
        failed: dict[str, BaseException] = {}
        if not self.keeps_slot:
            ends = [self.context.provider.delete(self.machines[name]) for name in names]
            met = zip(names, await asyncio.gather(*ends, return_exceptions=True), strict=True)
            failed = {name: error for name, error in met if error is not None}
        went = [name for name in names if name not in failed]
        self.gone.update(went)
        for name in went:
            await self.context.connections.drop(name)
        if self.head is not None and known:
            await node_commands.set_removed_nodes_down(
                self.context.connections, self.head, [name for name in went if name in known], NO_MACHINE_REASON
            )
        if went:
            await self.report(compress(went), "machine returned", done=True)
        for error in failed.values():
            raise error
