"""One fault of one node, from its first signal to the node's return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Reasons that Headway writes in Slurm begin so: what begins otherwise is somebody else's and is left as it is.
OWN_REASON = "headway: "
INCIDENT_REASON = f"{OWN_REASON}incident "  # such a node is returned by the end of its incident, after tests
# slurmctld's own, for nodes that it has lost.
SLURM_REASONS = ("Not responding", "Node unexpectedly rebooted", "not responding")
# And for one that still ends a job which was requeued and sent to it again. Nobody else would ever return it.
SLURM_DRAINS = ("Duplicate jobid",)
# Behind a person's name: whoever finds it alone goes on with it.
REBOOTS = "reboot, returned once its tests have passed"
OUT_BEFORE = "out_before"  # evidence of a step: for which reason somebody else had taken the node out
NUMBERS_BEFORE = "numbers_before"  # evidence of its first step: on other servers, where these are another's on this one
ORPHAN = "orphan"  # kind of a signal: the daemon of a job's batch script has died (node/agent/jobs/orphans.py)


def is_headway_reason(reason: str) -> bool:
    """Whether the reason of a node that is out is Headway's or slurmctld's: any other is a person's. "Prolog error": the
    prolog turns jobs away from a node that the agent has found unfit."""
    return reason.startswith((OWN_REASON, *SLURM_REASONS, *SLURM_DRAINS, "Prolog error"))


class FaultAction(StrEnum):
    """What a cluster does about an error; catalog/xid.yaml says it of each GPU error code. The lightest first. MOUNT: a volume of
    another machine's is lost, or jobs have filled the disk: what runs there goes on. The last two are no errors of a node's: its
    machine is taken back by the provider, or can't be made."""

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


# The lightest first.
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
    SEEN = "seen"
    DRAINING = "draining"
    JOBS_MOVED = "jobs moved"
    REPAIRING = "repairing"
    TESTING = "testing"
    RETURNED = "returned"
    OUT = "out of service"  # until a person returns it
    FALSE_ALARM = "false alarm"

    @property
    def closed(self) -> bool:
        return self in {IncidentState.RETURNED, IncidentState.FALSE_ALARM}


class Repair(StrEnum):
    """What can be tried, the lightest first."""

    MOUNT = "mount"  # of volumes, as soon as whoever has them answers
    RESET = "reset"  # of the GPU
    REBOOT = "reboot"  # of the machine
    REPLACE = "replace"  # by the provider: another machine in the same slot


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that a node's agent says. `id` is the same however often it is reported."""

    id: str
    at: float  # unix seconds, when it happened
    node: str
    code: int  # XID; 0 for what is none
    gpu: int | None  # its number on the node; None where that isn't known
    text: str  # the driver's words after the code, or the agent's own
    job: int | None = None  # the job that held the GPU, or that it is about
    kind: str = "xid"  # "xid": a line of the kernel's log; else what the agent calls it
    action: FaultAction | None = None  # what the agent suggests; of an XID the table says it


@dataclass(frozen=True, slots=True)
class IncidentStep:
    """A state that an incident reached, or more evidence in the state it is in."""

    at: float
    state: IncidentState
    actor: str  # "headway", "relay" (the head's agent, while no server listened), or the person
    text: str
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequeuedJob:
    """A job that an incident sent back to the queue. Times in unix seconds, None while it has not come to that."""

    incident: int
    job: int
    requeued_at: float
    running_at: float | None = None
    step_at: float | None = None  # the first training step that it reported since


@dataclass(frozen=True, slots=True)
class Incident:
    number: int
    cluster: str
    node: str
    what: str  # "XID 79: GPU has fallen off the bus"
    action: FaultAction
    state: IncidentState
    opened_at: float
    last_signal_at: float
    drained: bool = False  # by Headway: a drain that was there before is somebody else's
    fault_at: float = 0.0  # when it happened, as the node's kernel or the silence says
    score: int = 0  # how much it speaks against the node
    steps: tuple[IncidentStep, ...] = ()
    jobs: tuple[RequeuedJob, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """What Slurm may have as the reason of its node, on one line as it keeps them: ours first, then those with the numbers
        that it had on other servers (its steps say them)."""
        before = self.steps[0].evidence.get(NUMBERS_BEFORE) if self.steps else ()
        numbers = (self.number, *(before if isinstance(before, list) else ()))
        return tuple(f"{INCIDENT_REASON}{number}: {' '.join(self.what.split())}" for number in numbers)

    @property
    def current(self) -> tuple[IncidentStep, ...]:
        """What was done since the fault was last seen on a node in service."""
        seen = [step.state is IncidentState.SEEN for step in self.steps]
        return self.steps[max((i for i, now in enumerate(seen) if now and not (i and seen[i - 1])), default=0) :]

    def found(self, key: str) -> object:
        """The latest evidence of this name since then; None without any."""
        return next((step.evidence[key] for step in reversed(self.current) if key in step.evidence), None)
