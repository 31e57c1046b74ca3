"""Nodes, jobs and reservations as Slurm reports them. headway.slurm parses them; pages and commands show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.slurm.job_label import job_label
from headway.domain.slurm.node_reasons import NO_MACHINE_REASON

MAX_PRIORITY = 2**32 - 1  # of a job; Slurm computes with 32 bits
MOST_SIBLINGS = 8  # the most array tasks that may be returned where one job was requested by the array's number
OURS = "headway_"  # prefix of Headway's own Slurm reservations
SPARES = "headway_spares"  # reservation of the spare nodes
FLAKY_NODES = "headway_flaky"  # reservation of flaky nodes, for jobs with --reservation=headway_flaky
OUT = frozenset({"DRAIN", "DOWN", "FAIL"})  # states of a node that takes no jobs until it is returned to service
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})  # states of a node that has jobs
_BAD = frozenset({"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "INVALID_REG", "FUTURE"})
_CHANGES = frozenset({"POWERING_UP", "POWERING_DOWN", "POWER_DOWN"})


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, from Slurm's REST interface or commands."""

    name: str
    states: tuple[str, ...]  # ("IDLE",), ("DOWN", "NOT_RESPONDING"), ("MIXED", "DRAIN")
    reason: str
    gpus: int
    gpus_used: int
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    partitions: tuple[str, ...]
    reservation: str = ""
    boot_time: int = 0  # unix seconds
    gpu_types: tuple[str, ...] = ()  # as in a job's request: gpu:TYPE:N

    @property
    def absent(self) -> bool:
        """Returns whether the node is a slot that has no machine and should have none. Such slots are not counted as
        nodes."""
        return self.reason == NO_MACHINE_REASON or "POWERED_DOWN" in self.states

    @property
    def changes(self) -> bool:
        """Returns whether its machine is being created or given back."""
        return not _CHANGES.isdisjoint(self.states)

    @property
    def usable(self) -> bool:
        """Returns whether jobs can run on the node."""
        return _BAD.isdisjoint(self.states)


@dataclass(frozen=True, slots=True)
class JobState:
    """One job."""

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
    gpu_shares: int = 0  # shards, or per cent of MPS, that it holds; they are not in `gpus`
    description: str = ""  # Slurm's sentence that explains the one-word reason; often empty
    cpus: int = 0  # of the whole job
    memory_mib: int = 0  # of the whole job
    dependency: str = ""  # "afterok:12(unfulfilled)"
    reservation: str = ""
    features: str = ""
    licenses: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    scheduled_nodes: tuple[str, ...] = ()  # nodes on which backfill plans to start it, at `start_time`
    switches: int = 0  # the most leaf switches that the job wants to span; 0 = no request
    eligible_time: int = 0  # unix seconds from which it may start
    array_limit: int = 0  # tasks of its array that may run at once; 0 = all
    suspend_time: int = 0  # unix seconds, of its last suspend or resume; 0 = none
    more: Mapping[str, str | int] = field(default_factory=dict)  # other columns of squeue that have a value

    @property
    def label(self) -> str:
        """Returns the job's number, or the array's with the task."""
        return job_label(self.id, self.array_job_id, self.array_task)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A Slurm reservation. Times are unix seconds."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    flags: tuple[str, ...]
    start_time: int
    end_time: int
