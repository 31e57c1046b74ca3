"""Notices machines that died or came back, tells Slurm, and lets a spare take over.

`decide` is pure: (machines, nodes, jobs) -> actions. `Watch.step` carries them out, and is called every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headway.cluster.env import Env
from headway.cluster.spares import wanted_reserve
from headway.domain.cluster import Cluster
from headway.domain.hostlist import compress
from headway.domain.live import JobState, NodeState
from headway.domain.machine import Machine, MachineState
from headway.errors import HeadwayError
from headway.slurm import control

# Reasons of nodes that may return by themselves once they work again: Headway's own, and slurmctld's for lost nodes.
OWN_REASON = "headway: "
_SLURM_REASONS = ("Not responding", "Node unexpectedly rebooted", "not responding")


@dataclass(frozen=True, slots=True)
class Down:
    """The machine does not run: Slurm need not wait for its timeout to requeue the work."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Return:
    """The machine runs again and slurmd has registered."""

    node: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """These nodes stand by from now on."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class StartNow:
    """A requeued job need not sit out its BeginTime."""

    job: int


Action = Down | Return | Reserve | StartNow


def decide(
    cluster: Cluster,
    machines: Mapping[str, Machine],
    nodes: Mapping[str, NodeState],
    jobs: Iterable[JobState],
    reserved: frozenset[str],
) -> list[Action]:
    """What to tell Slurm now, in order."""
    actions: list[Action] = []
    expected = dict(nodes)
    for name in cluster.slot_names:
        node = nodes.get(name)
        if node is None:
            continue
        machine = machines.get(name)
        runs = machine is not None and machine.state is MachineState.RUNNING
        if not runs and "DOWN" not in node.states:
            word = "stopped" if machine is not None else "gone"
            actions.append(Down(name, f"{OWN_REASON}machine is {word}"))
            expected[name] = _as(node, "DOWN")
        elif runs and _may_return(node):
            actions.append(Return(name))
    wanted = wanted_reserve(cluster, expected, reserved)
    if wanted != reserved:
        actions.append(Reserve(wanted))
    actions += [StartNow(job.id) for job in jobs if _waits_after_requeue(job)]
    return actions


def _as(node: NodeState, state: str) -> NodeState:
    return replace(node, states=(state,))


def _may_return(node: NodeState) -> bool:
    """Down for a reason that has passed. A drain, or a reason a person wrote, stays until a person lifts it."""
    states = set(node.states)
    ours = node.reason.startswith((OWN_REASON, *_SLURM_REASONS))
    return "DOWN" in states and ours and not states & {"DRAIN", "NOT_RESPONDING", "FAIL"}


def _waits_after_requeue(job: JobState) -> bool:
    return job.state == "PENDING" and job.restarts > 0 and job.reason == "BeginTime"


@dataclass
class Watch:
    """One cluster's watch. `nudged` keeps a job from being nudged twice for the same restart."""

    cluster: Cluster
    env: Env
    nudged: set[tuple[int, int]] = field(default_factory=set)

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
                return f"job {job}", f"requeued (restart {jobs[job].restarts}), starts as soon as nodes are free"

    async def _works(self, machine: Machine) -> bool:
        """slurmd and MUNGE run there now: a node is never returned on an old registration."""
        try:
            ran = await self.env.connections.remote(
                machine, ["systemctl", "is-active", "slurmd", "munge"], timeout_s=10, check=False
            )
        except HeadwayError:
            return False
        return ran.code == 0
