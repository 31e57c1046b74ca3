"""Nodes, jobs and reservations as Slurm reports them. Parsed by headway.slurm, shown by pages and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.slots import NO_MACHINE_REASON

MOST_SIBLINGS = 8  # tasks that the number of an array may bring along where one job is asked for
OURS = "headway_"  # Slurm reservations of Headway's own:
SPARES = "headway_spares"  # nodes that stand by,
LEMONS = "headway_lemons"  # and nodes that fail too often, for jobs that say --reservation=headway_lemons
OUT = frozenset({"DRAIN", "DOWN", "FAIL"})  # states of a node that takes no jobs until somebody returns it
_BAD = frozenset({"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "INVALID_REG", "FUTURE"})
_CHANGES = frozenset({"POWERING_UP", "POWERING_DOWN", "POWER_DOWN"})


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    states: tuple[str, ...]  # ("IDLE",), ("DOWN", "NOT_RESPONDING"), ("MIXED", "DRAIN")
    reason: str
    gpus: int
    gpus_used: int
    gpus_used_index: tuple[int, ...]  # which of them
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    partitions: tuple[str, ...]
    reservation: str = ""
    boot_time: int = 0  # unix seconds
    gpu_types: tuple[str, ...] = ()  # as jobs ask for them: gpu:TYPE:N

    @property
    def absent(self) -> bool:
        """It is a slot that has no machine, and should have none: no node for anybody who counts nodes."""
        return self.reason == NO_MACHINE_REASON or "POWERED_DOWN" in self.states

    @property
    def changes(self) -> bool:
        """Its machine is being made or given back."""
        return not _CHANGES.isdisjoint(self.states)

    @property
    def usable(self) -> bool:
        return _BAD.isdisjoint(self.states)


@dataclass(frozen=True, slots=True)
class JobState:
    id: int
    name: str
    user: str
    account: str
    partition: str
    state: str  # "PENDING", "RUNNING", ...
    reason: str
    nodes: tuple[str, ...]
    node_count: int
    gpus: int
    submit_time: int
    start_time: int
    end_time: int
    time_limit_s: int | None
    restarts: int
    stdout: str
    stderr: str
    command: str
    workdir: str
    priority: int = 0
    exit_code: int = 0
    qos: str = ""
    array_job_id: int = 0
    array_task: str = ""
    comment: str = ""
    gpu_indexes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # node -> GPU numbers
    description: str = ""  # Slurm's sentence beside the reason, which is one word; often none
    cpus: int = 0  # of the whole job
    memory_mib: int = 0  # of the whole job
    dependency: str = ""  # "afterok:12(unfulfilled)"
    reservation: str = ""
    features: str = ""
    licenses: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    scheduled_nodes: tuple[str, ...] = ()  # where backfill means to start it, at `start_time`
    switches: int = 0  # leaves it wants to lie under at most; 0 = does not say
    eligible_time: int = 0  # unix seconds from which it may start
    array_limit: int = 0  # tasks of its array that may run at once; 0 = all
    suspend_time: int = 0  # unix seconds, of its last suspend or resume; 0 = none
    more: Mapping[str, str | int] = field(default_factory=dict)  # squeue's other columns, those that say something


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    flags: tuple[str, ...]
    start_time: int
    end_time: int


@dataclass(frozen=True, slots=True)
class Room:
    """How full a volume is, in bytes; None where `fault` says why that is not known."""

    path: str
    size: int | None
    free: int | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of readiness: `headway status` prints them, one (ok, message) a thing."""

    name: str
    ok: bool
    message: str
