"""Carries out what `decide` says, every few seconds, for one cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.cluster.env import Env
from headway.domain.cluster import Cluster
from headway.domain.hostlist import compress
from headway.domain.live import JobState, NodeState
from headway.domain.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.health.decide import OWN_REASON, Action, Down, Reserve, Return, StartNow, decide
from headway.health.refill import refill
from headway.slurm import control

REFILL_EVERY_S = 10.0


@dataclass
class Watch:
    """One cluster's watch. `nudged` keeps a job from being nudged twice for the same restart."""

    cluster: Cluster
    env: Env
    nudged: set[tuple[int, int]] = field(default_factory=set)
    clock: Callable[[], float] = time.time
    refilled: float = 0.0  # when caps were last looked at

    async def step(self, nodes: Iterable[NodeState], jobs: Iterable[JobState]) -> list[tuple[str, str]]:
        """Looks once and acts. Returns what was done as (node or job, words), for people to read."""
        machines = {machine.name: machine for machine in await self.env.provider.list(self.cluster.name)}
        head = machines.get(self.cluster.head)
        if head is None or head.state is not MachineState.RUNNING:
            return []
        all_jobs = {job.id: job for job in jobs}
        reserved = frozenset(await control.reserved_spares(self.env.connections, head))
        by_name = {node.name: node for node in nodes}
        said = []
        for action in decide(self.cluster, machines, by_name, all_jobs.values(), reserved):
            words = await self._do(action, head, machines, all_jobs)
            if words:
                said.append(words)
        if self.clock() - self.refilled >= REFILL_EVERY_S:
            self.refilled = self.clock()
            now = datetime.fromtimestamp(self.refilled).astimezone()
            said += await refill(self.cluster, self.env, head, now)
        return said

    async def _do(
        self, action: Action, head: Machine, machines: Mapping[str, Machine], jobs: Mapping[int, JobState]
    ) -> tuple[str, str] | None:
        run = self.env.connections
        match action:
            case Down(node, reason):
                await control.node_down(run, head, node, reason)
                return node, f"down: {reason.removeprefix(OWN_REASON)}; its jobs are requeued"
            case Return(node):
                if not await self._works(machines[node]):
                    return None
                await control.node_resume(run, head, node)
                return node, "runs again and is back in service"
            case Reserve(names):
                await control.set_spare_reservation(run, head, sorted(names))
                return "spares", f"{compress(names)} stands by" if names else "the spare takes over"
            case StartNow(job):
                key = (job, jobs[job].restarts)
                if key in self.nudged:
                    return None
                self.nudged.add(key)
                await control.start_now(run, head, job)
                return (
                    f"job {job}",
                    f"requeued (restart {jobs[job].restarts}), starts as soon as nodes are free",
                )

    async def _works(self, machine: Machine) -> bool:
        """slurmd and MUNGE run there now: a node is never returned on an old registration."""
        try:
            ran = await self.env.connections.remote(
                machine, ["systemctl", "is-active", "slurmd", "munge"], timeout_s=10, check=False
            )
        except HeadwayError:
            return False
        return ran.code == 0
