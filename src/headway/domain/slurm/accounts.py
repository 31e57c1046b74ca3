"""Slurm accounting as it should be, or as sacctmgr says it is; compared purely by headway.changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    share: int


@dataclass(frozen=True, slots=True)
class Share:
    """What an account has used, by sshare: old use counts less and less."""

    account: str
    norm_shares: float  # of the cluster, as its share says
    effective_usage: float  # of the cluster's use
    fair_share: float | None
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Association:
    """A user in an account."""

    user: str
    account: str
    default: bool = False  # the user's default account
    locked: bool = False  # may not submit (a departed user with running jobs)


@dataclass(frozen=True, slots=True)
class Qos:
    """Limits in sacctmgr's own words, e.g. {"GrpJobs": "50", "GrpTRES": "gres/gpu=16"}; flags sorted."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accounts:
    accounts: tuple[Account, ...] = ()
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    operators: tuple[str, ...] = ()  # users with AdminLevel=Operator
    account_qos: Mapping[str, str] = field(default_factory=dict)  # account -> its default QOS
    busy: frozenset[tuple[str, str]] = frozenset()  # observed: (user, account) with jobs that have not ended
    departed_jobs: str = "cancel"  # desired: what happens to a removed user's jobs, "cancel" | "finish"
