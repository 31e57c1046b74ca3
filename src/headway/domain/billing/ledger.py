"""Types of the billing ledger: job runs, machine lifetimes, node states, prices. Times are whole unix seconds; an end
of 0 means that it has not ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

DAY_S = 86_400  # daily sums use UTC days
MAX_STORED_INTEGER = (
    2**31 - 1
)  # the most that an integer database column holds; limits the checkpoints of one training and their seconds


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job, as Slurm accounting reports it. A requeued job has several runs, each with its own start."""

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
    # Over all nodes together, like every amount below; a MIG instance is its share of the compute slices
    gpus: float
    cpus: int
    memory_mib: int
    time_limit_s: int | None
    used_cpu_s: int
    used_memory_mib: int
    array_job: int = 0
    gpu_type: str = ""  # as Slurm names it; "" where Slurm gives no type
    energy_j: int = 0  # as Slurm measured it; 0 where it does not measure
    shards: int = 0  # gres/shard and gres/mps, which are not in `gpus`
    mps: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointStats:
    """Checkpoints that a training wrote in `up_s` seconds, `stalled_s` of which it spent waiting for the writes."""

    count: int
    stalled_s: float
    up_s: float

    @property
    def fits_database(self) -> bool:
        """Returns whether both figures fit into every supported database; a training may report any number."""
        return 0 <= self.count <= MAX_STORED_INTEGER and math.isfinite(self.stalled_s) and math.isfinite(self.up_s)

    @property
    def write_s(self) -> float:
        """Seconds that one checkpoint stalls the training."""
        return self.stalled_s / self.count

    @property
    def every_s(self) -> float:
        """Seconds from one checkpoint to the next."""
        return self.up_s / self.count


@dataclass(frozen=True, slots=True)
class Notification:
    """A message that people receive once. A second notification with the same `key` is not sent."""

    key: str
    kind: str  # "Budget" | "WeeklySummary" | "ModelPromoted" | "ModelPromotionRefused"
    severity: str  # "info" | "warning"
    title: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class GroupAllocation:
    """The part of a run that one group provided: `units` of the group's `per_node` units on each node. A unit is a GPU
    where the group has GPUs, or what they are divided into (`GpuParts.units_per_gpu`), else a CPU; a node's price is
    divided over its units. `gpus` is less than 1 for a part of a GPU."""

    group: str
    nodes: tuple[str, ...]
    gpu_type: str
    gpus: float
    cpus: int
    units: int
    per_node: int


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """CPUs that were allocated to a run on the nodes of one group, summed over those nodes."""

    job: int
    start: int
    end: int
    group: str
    nodes: tuple[str, ...]
    cpus: int


@dataclass(frozen=True, slots=True)
class MachineLifetime:
    """The time from when a machine was first seen until it was no longer seen."""

    machine: str
    group: str
    began: int
    ended: int
    seen: int  # time of the last sighting


class SpanKind(StrEnum):
    """State of a node while it was not plainly in service."""

    DOWN = "down"
    DRAINED = "drained"
    SPARE = "spare"


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """A stretch of time in which a node was in one of the states of SpanKind."""

    node: str
    kind: SpanKind
    began: int
    ended: int
    reason: str = ""


_FIXED = "fixed:"  # no group has a colon in its name


def fixed_cost_group(name: str) -> str:
    """Returns the group under which the prices of a fixed cost are recorded: "fixed:disks". It has one reserved machine
    and no nodes, so that it costs its price in each hour."""
    return f"{_FIXED}{name}"


def fixed_cost_name(group: str) -> str:
    """Returns the name of the fixed cost that is recorded as this group, "" for a group of nodes."""
    return group.removeprefix(_FIXED) if group.startswith(_FIXED) else ""


@dataclass(frozen=True, slots=True)
class NodePrice:
    """Price of one node of a group from `since` (unix seconds) on, or of a fixed cost (`fixed_cost_group`)."""

    group: str
    since: float
    usd_per_hour: Decimal
    spot: bool = False
    reserved: int = 0  # number of machines that are paid for even while they do not exist


@dataclass(frozen=True, slots=True)
class GroupUsage:
    """Use of one group by runs in a period, in units times seconds. `lost_unit_s` and `idle_unit_s` are parts of
    `unit_s`."""

    team: str
    per_node: int
    unit_s: int
    lost_unit_s: int
    idle_unit_s: int
