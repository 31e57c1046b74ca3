"""Teams and users of a cluster: their limits, caps and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from graphlib import TopologicalSorter

from headway.domain.network_policy import NetworkPolicy


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What each user of a team, or of a partition, may have at once; None: no limit."""

    running_jobs: int | None = None
    submitted_jobs: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    recent_gpu_hours: Decimal | None = None  # of a team's users: GPU-hours, of which old use counts less and less
    nodes: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What the jobs of a team, QOS or partition may have together at once; None: no limit. `resources`: "gpus", "cpus",
    "nodes", "memory_mib" -> number."""

    running_jobs: int | None = None
    submitted_jobs: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)


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
    own_qos: bool = True  # its jobs may choose the QOS of the team's name
    parent: str = ""  # team above it, "" = none
    user_limits: Mapping[str, UserLimits] = field(default_factory=dict)  # of single users; they replace per_user
    cpus: int | None = None  # allocated at once, as are the next two
    nodes: int | None = None
    memory_mib: int | None = None

    def limits_of(self, user: str) -> UserLimits:
        """Returns the limits of one user of the team."""
        own = self.user_limits.get(user, UserLimits())
        given = {name.name: value for name in fields(own) if (value := getattr(own, name.name)) is not None}
        return replace(self.per_user, **given)


def with_subteams(names: Iterable[str], parents: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the teams and all teams below them. `parents`: team -> the team above it, "" = none."""
    found = dict.fromkeys(names)
    for team in TopologicalSorter({team: [above] if above else [] for team, above in parents.items()}).static_order():
        if parents.get(team) in found:
            found[team] = None
    return tuple(found)


def parts_of_cluster(teams: Iterable[Team]) -> dict[str, tuple[Fraction, Fraction]]:
    """Returns, for each team, the part of the cluster that its shares give it together with the teams below it, and the part
    that its own users have of that. As in Slurm, the users of a team and the teams below it share the team's part, each user
    with share 1."""
    known = {team.name: team for team in teams}
    shares: dict[str, int] = {}
    for team in known.values():
        shares[team.parent] = shares.get(team.parent, 0) + team.share
    sums = {name: total + (len(known[name].users) if name else 0) for name, total in shares.items()}
    found: dict[str, tuple[Fraction, Fraction]] = {}
    for name in TopologicalSorter(
        {name: [team.parent] if team.parent else [] for name, team in known.items()}
    ).static_order():
        team = known[name]
        part = Fraction(team.share, sums[team.parent]) * (found[team.parent][0] if team.parent else 1)
        found[name] = (part, part * Fraction(len(team.users), sums[name]) if name in sums else part)
    return found


@dataclass(frozen=True, slots=True)
class User:
    """A person with an account on the machines. The uid is the same on every machine and is never used again. `uid`: that
    of the file; None: the server chooses it."""

    name: str
    ssh_keys: tuple[str, ...]  # public keys, one line each
    teams: tuple[str, ...]  # the first is the default account
    admin: bool = False  # the person who applied
    uid: int | None = None
