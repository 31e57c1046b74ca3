"""One fault of one node, from its first symptom to the node's return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headway.domain.slurm.node_reasons import (
    INCIDENT_REASON,
)

OUT_BEFORE = "out_before"  # evidence of a step: the reason for which a person had already taken the node out
# Evidence of the first step: the incident's numbers on other servers, which may be another incident's on this one
NUMBERS_BEFORE = "numbers_before"
ORPHAN = "orphan"  # kind of a symptom: the daemon of a job's batch script died (node/agent/jobs/orphaned_jobs.py)


class FaultAction(StrEnum):
    """The action on an error, lightest first; catalog/xid.yaml has the action of each GPU error code.
    MOUNT: a volume of another machine is lost, or jobs have filled the disk; running work continues. The last
    four are no errors of a node: the provider takes its machine back (RECLAIM), the machine can't be created (MAKE), the
    link between two leaf switches is slow (LINK), whose name then stands for the node, or the disk of the host that all
    machines share is full (HOST_DISK)."""

    APP = "app"
    CONSEQUENCE = "consequence"
    LOG = "log"
    WATCH = "watch"
    RESTART_JOB = "restart_job"
    MOUNT = "mount"
    RESET = "reset"
    DRAIN = "drain"
    REBOOT = "reboot"
    RMA = "rma"
    HANDS_ON = "hands_on"
    VERDICT = "verdict"
    RECLAIM = "reclaim"
    MAKE = "make"
    LINK = "link"
    HOST_DISK = "host_disk"


# Actions for which the node is drained, lightest first.
DRAINS = (
    FaultAction.MOUNT,
    FaultAction.RESET,
    FaultAction.DRAIN,
    FaultAction.REBOOT,
    FaultAction.RMA,
    FaultAction.HANDS_ON,
    FaultAction.RECLAIM,
)


class IncidentState(StrEnum):
    """States of an incident, in the order in which a repair passes them."""

    SEEN = "seen"
    DRAINING = "draining"
    JOBS_MOVED = "jobs moved"
    REPAIRING = "repairing"
    TESTING = "testing"
    RETURNED = "returned"
    OUT = "out of service"  # until a person returns the node
    FALSE_ALARM = "false alarm"

    @property
    def closed(self) -> bool:
        """Returns whether the incident needs no further work."""
        return self in {IncidentState.RETURNED, IncidentState.FALSE_ALARM}


class Repair(StrEnum):
    """Repairs that Headway tries, lightest first."""

    MOUNT = "mount"  # mount the volumes again, as soon as their server answers
    RESET = "reset"  # reset the GPU
    REBOOT = "reboot"  # reboot the machine
    REPLACE = "replace"  # the provider creates another machine in the same slot


@dataclass(frozen=True, slots=True)
class Symptom:
    """One report of a node's agent. `id` stays the same when the same event is reported again."""

    id: str
    at: float  # unix seconds of the event
    node: str
    code: int  # XID; 0 for other kinds
    gpu: int | None  # the GPU's number on the node; None where it is not known
    text: str  # the driver's text after the code, or the agent's own
    job: int | None = None  # the job that held the GPU, or that the symptom is about
    kind: str = "xid"  # "xid" for a line of the kernel log; otherwise the agent's name for it
    action: FaultAction | None = None  # the agent's suggestion; for an XID the catalogue decides


@dataclass(frozen=True, slots=True)
class IncidentStep:
    """A state that an incident reached, or more evidence in its present state."""

    at: float
    state: IncidentState
    actor: str  # "headway", "relay" (the head's agent, while no server listened), or a person
    text: str
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequeuedJob:
    """A job that an incident requeued. Times are unix seconds; None while it has not happened."""

    incident: int
    job: int
    requeued_at: float
    running_at: float | None = None
    step_at: float | None = None  # the first training step reported after the requeue


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident with its history."""

    number: int
    cluster: str
    node: str
    what: str  # "XID 79: GPU has fallen off the bus"
    action: FaultAction
    state: IncidentState
    opened_at: float
    last_symptom_at: float
    drained: bool = False  # Headway drained the node; a drain from before is another person's
    fault_at: float = 0.0  # time of the fault, from the node's kernel log or the start of its silence
    score: int = 0  # how much the incident counts against the node
    steps: tuple[IncidentStep, ...] = ()
    jobs: tuple[RequeuedJob, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons that Slurm may have for this node, each on one line because Slurm keeps them so. The first has the
        incident's own number; the others have its numbers on other servers, taken from its first step."""
        before = self.steps[0].evidence.get(NUMBERS_BEFORE) if self.steps else ()
        numbers = (self.number, *(before if isinstance(before, list) else ()))
        return tuple(f"{INCIDENT_REASON}{number}: {' '.join(self.what.split())}" for number in numbers)

    @property
    def current(self) -> tuple[IncidentStep, ...]:
        """Steps since the fault was last seen on a node in service."""
        seen = [step.state is IncidentState.SEEN for step in self.steps]
        return self.steps[max((i for i, now in enumerate(seen) if now and not (i and seen[i - 1])), default=0) :]

    def found(self, key: str) -> object:
        """Returns the latest evidence with this key among the current steps, or None."""
        return next((step.evidence[key] for step in reversed(self.current) if key in step.evidence), None)
