"""Brings Slurm in line with the machines of a cluster, every few seconds: carries out what
`policy.slurm_actions` decides, then runs the periodic checks of jobs and heads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.cluster.accounts.gpu_hour_cap_resets import reset_due_usage
from headway.cluster.active_head import active_head, leader_file
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import INCIDENT_REASON
from headway.domain.slurm.nodes_and_jobs import OUT, JobState, NodeState
from headway.errors import CommandFailed
from headway.health.context import fault_text
from headway.health.head_recovery import HeadRecovery
from headway.health.incidents import flaky_node_reservation
from headway.health.incidents.engine import IncidentEngine
from headway.health.incidents.return_to_service import repeat_return
from headway.health.jobs.short_run_requeue import ShortRunRequeuer
from headway.health.jobs.stall_watchdog import StallWatchdog
from headway.health.policy.slurm_actions import DeadNode, ReserveSpares, StartRequeuedJob, plan_actions
from headway.slurm import job_commands, node_reservations

CAPS_EVERY_S = 10.0


@dataclass
class SlurmReconciler:
    """Brings Slurm in line with the machines of one cluster. `started` keeps a requeued job from being started twice for
    the same restart."""

    cluster: Cluster
    context: ClusterContext
    incidents: IncidentEngine
    stall_watchdog: StallWatchdog
    started: set[tuple[int, int]] = field(default_factory=set)
    short_runs: ShortRunRequeuer = field(init=False)
    head_recovery: HeadRecovery = field(default_factory=HeadRecovery)
    clock: Callable[[], float] = time.time
    caps_checked_at: float = 0.0  # when caps were last checked
    reservation_fault: str = ""  # why Slurm does not reserve the spares, as last reported
    found_at: dict[DeadNode, float] = field(default_factory=dict)  # those that wait, and when they were first found

    def __post_init__(self) -> None:
        self.short_runs = ShortRunRequeuer(leader_file(self.cluster) if self.cluster.controllers > 1 else "")

    async def reconcile(self, nodes: Iterable[NodeState], jobs: Iterable[JobState]) -> list[tuple[str, str]]:
        """Runs one pass. Returns messages as (node or job, text)."""
        machines = await self.context.machines(self.cluster.name)
        messages = (
            await self.head_recovery.recover_first_head(self.cluster, self.context, machines)
            if self.cluster.health.act
            else []
        )
        head = await active_head(self.cluster, self.context, machines)
        if head is None:
            return messages
        all_jobs = {job.id: job for job in jobs}
        reserved = frozenset(await node_reservations.reserved_nodes(self.context.connections, head))
        by_name = {node.name: node for node in nodes if not node.absent}
        if by_name:
            self.incidents.empty_slots = frozenset(set(self.cluster.slot_names) - by_name.keys())
        actions = plan_actions(self.cluster, machines, by_name, all_jobs.values(), reserved)
        dead = (one for one in actions if isinstance(one, DeadNode))
        self.found_at = {one: self.found_at.get(one, self.clock()) for one in dead if one.wait_s}
        for action in actions:
            if isinstance(action, DeadNode):
                if action.wait_s and await self._waits(action):
                    continue
                if not action.running or await self.incidents.confirm_dead(action.node, action.jobs):
                    messages += await self.incidents.handle_dead_node(
                        action.node, action.what, at=action.at, runs_again=action.running, fence=action.what
                    )
                continue
            if isinstance(action, StartRequeuedJob) and (
                not self.cluster.health.act or (action.job, all_jobs[action.job].restarts) in self.started
            ):
                continue
            words = await self._carry_out(action, head, all_jobs)
            if words:
                messages.append(words)
        if self.cluster.health.act:
            messages += await self._repeat_returns(by_name.values())
            messages += await self.short_runs.requeue_short_runs(self.context.connections, head, all_jobs.values())
        if self.clock() - self.caps_checked_at >= CAPS_EVERY_S:
            self.caps_checked_at = self.clock()
            now = datetime.fromtimestamp(self.caps_checked_at).astimezone()
            messages += await reset_due_usage(self.cluster, self.context, head, now)
            await flaky_node_reservation.update_flaky_reservation(self.incidents.context)
        messages += await self.stall_watchdog.check_jobs(head, all_jobs.values())
        return messages

    async def _waits(self, action: DeadNode) -> bool:
        """Returns whether it is too early, or the node has an open incident, whose end returns it."""
        if self.clock() - self.found_at[action] < action.wait_s:
            return True
        return bool(await self.context.store.incidents.search(self.cluster.name, node=action.node, unfinished=True))

    async def _repeat_returns(self, nodes: Iterable[NodeState]) -> list[tuple[str, str]]:
        """Returns nodes to service that are still out for a closed incident. slurmctld forgets the last seconds before
        it is killed, and with them the return of a node."""
        messages = []
        for node in nodes:
            if not (node.reason.startswith(INCIDENT_REASON) and OUT & set(node.states)):
                continue
            words = await repeat_return(self.incidents.context, node.name)
            messages += [(node.name, words)] if words else []
        return messages

    async def _carry_out(
        self, action: ReserveSpares | StartRequeuedJob, head: Machine, jobs: Mapping[int, JobState]
    ) -> tuple[str, str] | None:
        """Carries out one action. Returns a message, None for nothing to report."""
        run = self.context.connections
        match action:
            case ReserveSpares(names):
                try:
                    await node_reservations.set_reserved_nodes(run, head, sorted(names))
                except CommandFailed as error:  # the rest of the pass does not depend on it; the next pass tries again
                    before, self.reservation_fault = self.reservation_fault, fault_text(error)
                    return ("spares", self.reservation_fault) if self.reservation_fault != before else None
                self.reservation_fault = ""
                return "spares", f"{compress(names)} is a spare now" if names else "the spare takes over"
            case StartRequeuedJob(job):
                self.started.add((job, jobs[job].restarts))
                await job_commands.start_requeued_job(run, head, job, jobs[job].submit_time)
                return (
                    f"job {job}",
                    f"requeued (restart {jobs[job].restarts}), starts as soon as nodes are free",
                )
