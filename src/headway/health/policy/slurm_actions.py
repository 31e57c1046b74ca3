"""Decides which nodes are dead, which free nodes are reserved as spares, and which requeued jobs start at once. Pure:
(machines, nodes, jobs) -> actions, which `health.slurm_reconciler` carries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headway.cluster.scaling.spare_selection import spares_to_reserve
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.slurm.node_reasons import (
    HEADWAY_REASON,
    INCIDENT_REASON,
    ROLLOUT_REASON,
    SCALE_IN_REASON,
    SLURM_DRAINS,
    SLURM_REASONS,
)
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState

_REQUEUE_S = 150  # seconds; Slurm delays a requeued job by two minutes
# For so long the agent's own report of what it found may open the incident, whose repair may be lighter than a reboot.
DRAIN_WAITS_S = 60.0


@dataclass(frozen=True, slots=True)
class DeadNode:
    """A node whose machine does not run or was restarted under its jobs, or that Slurm has lost. Its jobs can be
    requeued at once instead of after Slurm's timeout of minutes. `at`: since when, in unix seconds, 0 if not known.
    `running`: the machine runs (again). `jobs`: jobs that Slurm still lists as running although their machine was
    restarted. `wait_s`: nothing is done before this was found for so many seconds."""

    node: str
    what: str
    at: float = 0.0
    running: bool = False
    jobs: tuple[int, ...] = ()
    wait_s: float = 0.0


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
    spares = spares_to_reserve(cluster, expected, reserved)
    if spares != reserved:
        actions.append(ReserveSpares(spares))
    actions += [StartRequeuedJob(job.id) for job in jobs if _waits_after_requeue(job)]
    return actions


def _lost_with_machine(job: JobState, machine: Machine | None) -> bool:
    """Returns whether Slurm lists the job as running although its machine has been started since. A container's slurmd
    reports the host's boot time, so slurmctld notices only minutes later that a job is missing."""
    return machine is not None and 0 < job.start_time < machine.started_at


def _find_dead(node: NodeState, machine: Machine | None, lost: tuple[int, ...]) -> DeadNode | None:
    """Returns the DeadNode of a dead node, else None. Skipped are idle nodes that a person or an incident has taken out
    of service, nodes that never registered (apply handles them), and idle nodes that are being scaled in or rolled."""
    goes = node.reason.startswith((SCALE_IN_REASON, ROLLOUT_REASON)) and not node.cpus_used
    if node.absent or node.changes or goes:
        return None
    out = bool({"DOWN", "DRAIN", "FAIL"}.intersection(node.states))
    drained = "DRAIN" in node.states and node.reason.startswith(SLURM_DRAINS)
    a_persons = out and not drained and not node.reason.startswith((HEADWAY_REASON, *SLURM_REASONS))
    led = a_persons or node.reason.startswith(INCIDENT_REASON)
    if not node.boot_time or (led and not node.cpus_used):
        return None
    if machine is None or machine.state is not MachineState.RUNNING:
        return DeadNode(node.name, f"its machine is {'stopped' if machine is not None else 'gone'}")
    if drained and not node.cpus_used:
        return DeadNode(node.name, f"Slurm had drained it: {node.reason}", running=True, wait_s=DRAIN_WAITS_S)
    if lost:
        what = "its machine was restarted while jobs ran"
        return DeadNode(node.name, what, machine.started_at, running=True, jobs=lost)
    if "DOWN" in node.states and not led and "NOT_RESPONDING" not in node.states:
        return DeadNode(node.name, f"Slurm marked it DOWN: {node.reason}", running=True)
    return None


def _waits_after_requeue(job: JobState) -> bool:
    """Returns whether the job waits only for the BeginTime that Slurm sets at a requeue. A later begin time was set by
    the job's owner (scontrol update StartTime=22:00). A requeue sets a new submit time."""
    own = job.eligible_time > job.submit_time + _REQUEUE_S
    return job.state == "PENDING" and job.restarts > 0 and job.reason == "BeginTime" and not own
