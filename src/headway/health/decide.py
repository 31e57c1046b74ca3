"""What to tell Slurm when machines die or come back. Pure: (machines, nodes, jobs) -> actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headway.cluster.spares import wanted_reserve
from headway.domain.cluster import Cluster
from headway.domain.live import JobState, NodeState
from headway.domain.machine import Machine, MachineState

# Reasons of nodes that may return by themselves once they work again: Headway's own, and slurmctld's for lost nodes.
OWN_REASON = "headway: "
_SLURM_REASONS = ("Not responding", "Node unexpectedly rebooted", "not responding")


@dataclass(frozen=True, slots=True)
class Down:
    """The machine does not run, or was started again under its jobs: Slurm need not wait for minutes to requeue the
    work."""

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
    jobs = tuple(jobs)
    lost = {node for job in jobs if job.state == "RUNNING" for node in job.nodes if _outlived(job, machines.get(node))}
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
        elif name in lost and "DOWN" not in node.states:
            actions.append(Down(name, f"{OWN_REASON}machine was started again under its jobs"))
            expected[name] = _as(node, "DOWN")
        elif runs and _may_return(node):
            actions.append(Return(name))
    wanted = wanted_reserve(cluster, expected, reserved)
    if wanted != reserved:
        actions.append(Reserve(wanted))
    actions += [StartNow(job.id) for job in jobs if _waits_after_requeue(job)]
    return actions


def _outlived(job: JobState, machine: Machine | None) -> bool:
    """Whether Slurm still believes in a job whose machine has been started since. A container's slurmd reports the
    host's boot time, so slurmctld finds out only minutes later that a job is missing."""
    return machine is not None and 0 < job.start_time < machine.started_at


def _as(node: NodeState, state: str) -> NodeState:
    return replace(node, states=(state,))


def _may_return(node: NodeState) -> bool:
    """Down for a reason that has passed. A drain, or a reason a person wrote, stays until a person lifts it."""
    states = set(node.states)
    ours = node.reason.startswith((OWN_REASON, *_SLURM_REASONS))
    return "DOWN" in states and ours and not states & {"DRAIN", "NOT_RESPONDING", "FAIL"}


def _waits_after_requeue(job: JobState) -> bool:
    return job.state == "PENDING" and job.restarts > 0 and job.reason == "BeginTime"
