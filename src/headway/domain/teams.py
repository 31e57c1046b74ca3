"""Teams and users of a cluster: their limits, caps and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from headway.domain.network_policy import NetworkPolicy


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What each user of a team, or of a partition, may have at once; None: no limit."""

    running_jobs: int | None = None
    submitted_jobs: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    recent_gpu_hours: Decimal | None = None  # of a team's users: GPU-hours, of which old use counts less and less


@dataclass(frozen=True, slots=True)
class GpuHourCap:
    """A team's GPU-hours per period. The full amount is available again at the start of each period; use does not
    decay."""

    hours: Decimal
    per: str  # "day" | "week" | "month" | "quarter" | "year"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a team's jobs may use in one period. `unit`: "usd" | "gpu_hours"."""

    unit: str
    limit: Decimal
    per: str  # the same values as in GpuHourCap
    warn: float  # share of the limit at which the team is warned
    cap: bool  # when it is used up, no further job starts


@dataclass(frozen=True, slots=True)
class Team:
    """A team. It becomes a Slurm account and a QOS of the same name."""

    name: str
    users: tuple[str, ...]
    share: int
    gpu_hours: GpuHourCap | None = None
    running_jobs: int | None = None
    submitted_jobs: int | None = None
    gpus: int | None = None  # GPUs allocated at once; MIG instances count as GPUs
    leads: tuple[str, ...] = ()  # users of the team who may act on all its jobs
    budget: Budget | None = None
    environment: str = ""  # as in Partition
    container_image: str = ""  # as in Partition
    gpu_parts: Mapping[str, int] = field(
        default_factory=dict
    )  # allocated at once: MIG profile, "shard" or "mps" -> number
    per_user: UserLimits = field(default_factory=UserLimits)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    default_qos: str = ""  # QOS of its jobs without --qos; "" = its own


@dataclass(frozen=True, slots=True)
class User:
    """A person with an account on the machines. The server chooses the uid: it is the same on every machine and is
    never used again."""

    name: str
    ssh_keys: tuple[str, ...]  # public keys, one line each
    teams: tuple[str, ...]  # the first is the default account
    admin: bool = False  # the person who applied
