"""Types of the billing ledger: runs of jobs, lives of machines, states of nodes, prices. Times are whole unix seconds;
an end of 0
means that it has not ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

DAY_S = 86_400  # days that are summed are those of UTC
MAX_STORED_INTEGER = (
    2**31 - 1
)  # checkpoints, and seconds of them, of one training: what a column of whole numbers holds


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job, as accounting has it: a requeued job has several, each with its own start."""

    job: int
    start: int
    end: int
    submit: int
    eligible: int
    team: str
    user: str
    partition: str
    qos: str
    state: str
    nodes: tuple[str, ...]
    gpus: int  # of all nodes together, as everything below
    cpus: int
    memory_mib: int
    time_limit_s: int | None
    used_cpu_s: int
    used_memory_mib: int
    array_job: int = 0
    gpu_type: str = ""  # as Slurm says it; "" where it does not
    energy_j: int = 0  # as Slurm measured it; 0 where it does not


@dataclass(frozen=True, slots=True)
class CheckpointStats:
    """Checkpoints that a training wrote in `up_s` seconds, standing still for `stalled_s` of them."""

    count: int
    stalled_s: float
    up_s: float

    @property
    def fits_database(self) -> bool:
        """Whether every database holds it; trainings say what they like."""
        return 0 <= self.count <= MAX_STORED_INTEGER and math.isfinite(self.stalled_s) and math.isfinite(self.up_s)

    @property
    def write_s(self) -> float:
        return self.stalled_s / self.count

    @property
    def every_s(self) -> float:
        return self.up_s / self.count


@dataclass(frozen=True, slots=True)
class Notification:
    """What people are to be told once. `key` is what makes it one: news with a key that was told is not told again."""

    key: str
    kind: str  # "Budget" | "WeeklySummary"
    severity: str  # "info" | "warning"
    title: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class GroupAllocation:
    """What a run held of one group: `units` of the group's `per_node` on each node. Units are GPUs where the group has
    some, else CPUs: a node's price is the price of its units."""

    group: str
    nodes: tuple[str, ...]
    gpu_type: str
    gpus: int
    cpus: int
    units: int
    per_node: int


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """CPUs that a run held of the nodes of one group, of all of them together."""

    job: int
    start: int
    end: int
    group: str
    nodes: tuple[str, ...]
    cpus: int


@dataclass(frozen=True, slots=True)
class MachineLifetime:
    """A machine from the moment it was seen first until it was seen no more."""

    machine: str
    group: str
    began: int
    ended: int
    seen: int  # last


class SpanKind(StrEnum):
    """What a node was that was not simply up."""

    DOWN = "down"
    DRAINED = "drained"
    SPARE = "spare"


@dataclass(frozen=True, slots=True)
class NodeSpan:
    node: str
    kind: SpanKind
    began: int
    ended: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodePrice:
    """Of a node of a group from `since` on."""

    group: str
    since: int
    usd_per_hour: Decimal
    spot: bool = False
    reserved: int = 0  # machines that are paid for whether they are there or not


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """What runs held of one group in a stretch of time, in units times seconds; `lost` and `idle` are parts of it."""

    team: str
    per_node: int
    unit_s: int
    lost_unit_s: int
    idle_unit_s: int
