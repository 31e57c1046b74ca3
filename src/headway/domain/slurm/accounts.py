"""Slurm accounting, as desired or as sacctmgr reports it. headway.changes compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# A Slurm operator: Headway acts as this user where Slurm would refuse the person and the server has checked the right.
OPERATOR = "headway"


@dataclass(frozen=True, slots=True)
class Account:
    """A Slurm account with its fair-share weight. `limits` of all its jobs are in sacctmgr's terms."""

    name: str
    share: int
    limits: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""  # account above it; "" = root


@dataclass(frozen=True, slots=True)
class AccountShare:
    """Use of an account, from sshare. Old use counts less and less."""

    account: str
    norm_shares: float  # share of the cluster that the account's weight entitles it to
    effective_usage: float  # share of the cluster's use
    fair_share: float | None
    gpu_hours: float
    user_gpu_hours: Mapping[str, float] = field(default_factory=dict)  # of each user


@dataclass(frozen=True, slots=True)
class Association:
    """Membership of a user in an account."""

    user: str
    account: str
    default: bool = False  # the user's default account
    locked: bool = False  # may not submit (a departed user with running jobs)
    limits: Mapping[str, str] = field(default_factory=dict)  # in sacctmgr's terms
    qos: tuple[str, ...] = ()  # sorted QOS that the user's jobs may have, if they are not those of the account


@dataclass(frozen=True, slots=True)
class Qos:
    """A Slurm QOS. `limits` is in sacctmgr's terms, e.g. {"GrpJobs": "50", "GrpTRES": "gres/gpu=16"}; MaxWall is in
    minutes. `settings` are those that differ from Slurm's defaults; GraceTime is in seconds. `flags` and `preempts` are
    sorted."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # GraceTime, PreemptMode, Priority, UsageFactor
    preempts: tuple[str, ...] = ()  # names of QOS


@dataclass(frozen=True)
class Accounts:
    """All accounting entries of a cluster, desired or observed."""

    accounts: tuple[Account, ...] = ()
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    operators: tuple[str, ...] = ()  # users with AdminLevel=Operator
    account_qos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # account -> its QOS, the default first
    busy: frozenset[tuple[str, str]] = frozenset()  # observed: (user, account) pairs with jobs that have not ended
    of_partitions: tuple[
        tuple[str, str, str], ...
    ] = ()  # observed: (user, account, partition) of associations in one partition
    departed_jobs: str = "cancel"  # desired: what happens to the jobs of a removed user, "cancel" | "finish"
