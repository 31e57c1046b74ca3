"""Decides what to tell Slurm when machines die or return. Pure: (machines, nodes, jobs) -> actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headway.cluster.scaling.spares import spares_to_reserve
from headway.domain.cluster import Cluster
from headway.domain.incident import INCIDENT_REASON, OWN_REASON, SLURM_DRAINS, SLURM_REASONS
from headway.domain.machine import Machine, MachineState
from headway.domain.slots import ROLLOUT_REASON, SCALE_IN_REASON
from headway.domain.slurm.state import JobState, NodeState

_REQUEUE_S = 150  # Slurm lets a requeued job wait for two minutes


@dataclass(frozen=True, slots=True)
class DeadNode:
    """The machine does not run, or was started again under its jobs, or Slurm has lost it: Slurm need not wait for
    minutes to requeue the work. `at`: since when, 0 where that isn't known. `runs`: it runs (again). `jobs`: those that
    Slurm believes in although their machine has been started since."""

    node: str
    what: str
    at: float = 0.0
    running: bool = False
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReserveSpares:
    """The nodes to reserve as spares."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class StartRequeuedJob:
    """A requeued job to start without waiting for its BeginTime."""

    job: int


Action = DeadNode | ReserveSpares | StartRequeuedJob


def plan_actions(
    cluster: Cluster,
    machines: Mapping[str, Machine],
    nodes: Mapping[str, NodeState],
    jobs: Iterable[JobState],
    reserved: frozenset[str],
) -> list[Action]:
    """Returns the actions to carry out now, in order."""
    actions: list[Action] = []
    expected = dict(nodes)
    jobs = tuple(jobs)
    lost = [
        (node, j.id)
        for j in jobs
        if j.state == "RUNNING"
        for node in j.nodes
        if _lost_with_machine(j, machines.get(node))
    ]
    for name in cluster.slot_names:
        if name in nodes:
            found = _find_dead(nodes[name], machines.get(name), tuple(job for node, job in lost if node == name))
            if found is not None:
                actions.append(found)
                expected[name] = replace(nodes[name], states=("DOWN",))
    wanted = spares_to_reserve(cluster, expected, reserved)
    if wanted != reserved:
        actions.append(ReserveSpares(wanted))
    actions += [StartRequeuedJob(job.id) for job in jobs if _waits_after_requeue(job)]
    return actions


def _lost_with_machine(job: JobState, machine: Machine | None) -> bool:
    """Whether Slurm still believes in a job whose machine has been started since. A container's slurmd reports the
    host's boot time, so slurmctld finds out only minutes later that a job is missing."""
    return machine is not None and 0 < job.start_time < machine.started_at


def _find_dead(node: NodeState, machine: Machine | None, lost: tuple[int, ...]) -> DeadNode | None:
    """A node that a person has taken out of service and that nothing runs on is theirs, one of an incident the incident's;
    one that never came up is apply's; one that leaves or is rolled is missed as long as jobs run there."""
    goes = node.reason.startswith((SCALE_IN_REASON, ROLLOUT_REASON)) and not node.cpus_used
    if node.absent or node.changes or goes:
        return None
    out = bool({"DOWN", "DRAIN", "FAIL"}.intersection(node.states))
    drained = "DRAIN" in node.states and node.reason.startswith(SLURM_DRAINS)
    a_persons = out and not drained and not node.reason.startswith((OWN_REASON, *SLURM_REASONS))
    led = a_persons or node.reason.startswith(INCIDENT_REASON)
    if not node.boot_time or (led and not node.cpus_used):
        return None
    if machine is None or machine.state is not MachineState.RUNNING:
        return DeadNode(node.name, f"its machine is {'stopped' if machine is not None else 'gone'}")
    if drained and not node.cpus_used:
        return DeadNode(node.name, f"Slurm had drained it: {node.reason}", running=True)
    if lost:
        what = "its machine was started again under its jobs"
        return DeadNode(node.name, what, machine.started_at, running=True, jobs=lost)
    if "DOWN" in node.states and not led and "NOT_RESPONDING" not in node.states:
        return DeadNode(node.name, f"Slurm had lost it: {node.reason}", running=True)
    return None


def _waits_after_requeue(job: JobState) -> bool:
    """A later time than Slurm's own is its owner's (scontrol update StartTime=22:00). With a requeue a job is submitted anew."""
    own = job.eligible_time > job.submit_time + _REQUEUE_S
    return job.state == "PENDING" and job.restarts > 0 and job.reason == "BeginTime" and not own
