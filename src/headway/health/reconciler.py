"""Carries out what `decide` says, every few seconds, for one cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.cluster.active_head import head_now, leads_file
from headway.cluster.context import Env
from headway.domain.cluster import Cluster
from headway.domain.incident import INCIDENT_REASON
from headway.domain.machine import Machine
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.state import OUT, JobState, NodeState
from headway.errors import CommandFailed
from headway.health.context import fault_of
from headway.health.gpu_hour_caps import refill
from headway.health.head_recovery import Heads
from headway.health.incidents import flaky_nodes
from headway.health.incidents.engine import Responder
from headway.health.incidents.verification import return_again
from headway.health.jobs.short_run_requeue import CutShort
from headway.health.jobs.stall_watchdog import Tender
from headway.health.policy.reconcile_rules import Dead, Reserve, StartNow, decide
from headway.slurm import commands

REFILL_EVERY_S = 10.0
REST_S = 1.0  # between a job's end and its next beginning: slurmd's own count (control.start_now)


@dataclass
class Watch:
    """One cluster's watch. `nudged` keeps a job from being nudged twice for the same restart."""

    cluster: Cluster
    env: Env
    responder: Responder
    tender: Tender
    nudged: set[tuple[int, int]] = field(default_factory=set)
    cut_short: CutShort = field(init=False)
    heads: Heads = field(default_factory=Heads)
    clock: Callable[[], float] = time.time
    refilled: float = 0.0  # when caps were last looked at
    refused: str = ""  # why Slurm does not hold the spares, as last said

    def __post_init__(self) -> None:
        self.cut_short = CutShort(leads_file(self.cluster) if self.cluster.controllers > 1 else "")

    async def step(self, nodes: Iterable[NodeState], jobs: Iterable[JobState]) -> list[tuple[str, str]]:
        """Looks once and acts. Returns what was done as (node or job, words), for people to read."""
        machines = {machine.name: machine for machine in await self.env.provider.list(self.cluster.name)}
        said = await self.heads.step(self.cluster, self.env, machines) if self.cluster.health.act else []
        head = await head_now(self.cluster, self.env, machines)
        if head is None:
            return said
        all_jobs = {job.id: job for job in jobs}
        reserved = frozenset(await commands.reserved(self.env.connections, head))
        by_name = {node.name: node for node in nodes if not node.absent}
        if by_name:
            self.responder.absent = frozenset(set(self.cluster.slot_names) - by_name.keys())
        waited = False
        for action in decide(self.cluster, machines, by_name, all_jobs.values(), reserved):
            if isinstance(action, Dead):
                if not action.runs or await self.responder.still_so(action.node, action.jobs):
                    said += await self.responder.dead(
                        action.node, action.what, at=action.at, runs_again=action.runs, fence=action.what
                    )
                continue
            if isinstance(action, StartNow):
                if not self.cluster.health.act or (action.job, all_jobs[action.job].restarts) in self.nudged:
                    continue
                if not waited:
                    await asyncio.sleep(REST_S)
                    waited = True
            words = await self._do(action, head, all_jobs)
            if words:
                said.append(words)
        if self.cluster.health.act:
            said += await self._returned_before(by_name.values())
            said += await self.cut_short.step(self.env.connections, head, all_jobs.values())
        if self.clock() - self.refilled >= REFILL_EVERY_S:
            self.refilled = self.clock()
            now = datetime.fromtimestamp(self.refilled).astimezone()
            said += await refill(self.cluster, self.env, head, now)
            await flaky_nodes.hold(self.responder.tools)
        said += await self.tender.step(head, all_jobs.values())
        return said

    async def _returned_before(self, nodes: Iterable[NodeState]) -> list[tuple[str, str]]:
        """Nodes that are out for an incident that is over. slurmctld forgets the last seconds before it is killed, and with
        them that a node was returned: nobody else would ever take it up."""
        said = []
        for node in nodes:
            if not (node.reason.startswith(INCIDENT_REASON) and OUT & set(node.states)):
                continue
            words = await return_again(self.responder.tools, node.name)
            said += [(node.name, words)] if words else []
        return said

    async def _do(
        self, action: Reserve | StartNow, head: Machine, jobs: Mapping[int, JobState]
    ) -> tuple[str, str] | None:
        run = self.env.connections
        match action:
            case Reserve(names):
                try:
                    await commands.reserve(run, head, sorted(names))
                except CommandFailed as error:  # the rest of the look does not depend on it; tried again with the next
                    before, self.refused = self.refused, fault_of(error)
                    return ("spares", self.refused) if self.refused != before else None
                self.refused = ""
                return "spares", f"{compress(names)} stands by" if names else "the spare takes over"
            case StartNow(job):
                self.nudged.add((job, jobs[job].restarts))
                await commands.start_now(run, head, job)
                return (
                    f"job {job}",
                    f"requeued (restart {jobs[job].restarts}), starts as soon as nodes are free",
                )
