"""From a file without faults to a domain.Cluster: every default filled in."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from headway.domain.cluster import Cluster, Dataset, GpuHourCap, Host, Partition, Plan, Slot, Storage, Team, User
from headway.spec import fabric, tiers
from headway.spec.model import UNLIMITED, ClusterFile, PartitionPart, TeamPart
from headway.spec.rules import mount_of, wishes_of
from headway.spec.slurmkeys import VERSIONS

DEFAULT_TEAM = "default"
DEFAULT_PARTITION = "train"


def build(file: ClusterFile, plan: Plan, owner: str) -> Cluster:
    """The resolved cluster. `owner` always has an account, the file's own keys, and is the admin."""
    slots, switches = fabric.lay_out(file.name, file.fabric, file.nodes + file.spares)
    teams = _teams(file, owner)
    return Cluster(
        name=file.name,
        provider=file.provider,
        image=file.image,
        slurm_version=VERSIONS[file.image],
        plan=plan,
        nodes=file.nodes,
        spares=file.spares,
        slots=slots,
        switches=switches,
        storage=_storage(file),
        partitions=_partitions(file, slots),
        teams=teams,
        users=_users(file, teams, owner),
        slurm=dict(file.slurm),
        hosts=_hosts(file, slots),
        departed_jobs=file.departures.jobs,
        mail_relay=file.mail.relay if file.mail else "",
        # Machines of one's own carry no plugin of ours; what else they have, the file says.
        containers=file.containers.backend or ("builtin" if file.provider == "local" else ""),
    )


def _storage(file: ClusterFile) -> Storage:
    return Storage(
        datasets=tuple(
            Dataset(part.name, (part.path or "").rstrip("/"), mount_of(part), part.read_only)
            for part in file.storage.datasets
        )
    )


def _partitions(file: ClusterFile, slots: tuple[Slot, ...]) -> tuple[Partition, ...]:
    parts = file.partitions or {DEFAULT_PARTITION: PartitionPart()}
    everywhere = tuple(slot.name for slot in slots)
    tier_of = tiers.assign(wishes_of(file))[0]
    preempted = {name for part in parts.values() for name in part.preempts}
    default = next((name for name, part in parts.items() if part.default), next(iter(parts)))
    return tuple(
        Partition(
            name=name,
            # A partition over all nodes has the spares too: a spare takes any node's place there.
            nodes=everywhere if part.nodes in (None, file.nodes) else everywhere[: part.nodes],
            default=name == default,
            tier=tier_of.get(name, tiers.LOWEST),
            max_time_s=_limit(part.max_time),
            default_time_s=_limit(part.default_time),
            preempts=tuple(part.preempts),
            preemptable=name in preempted,
            grace_s=part.grace_time,
            teams=tuple(part.teams),
            slurm=dict(part.slurm),
        )
        for name, part in parts.items()
    )


def _limit(seconds: int | None) -> int | None:
    return None if seconds in (None, UNLIMITED) else seconds


def _teams(file: ClusterFile, owner: str) -> tuple[Team, ...]:
    parts = {name: (part, list(part.users)) for name, part in file.teams.items()}
    if not parts:
        parts[DEFAULT_TEAM] = (TeamPart(), [owner, *(name for name in file.users if name != owner)])
    elif not any(owner in users for _, users in parts.values()):
        part, users = parts.get(DEFAULT_TEAM, (TeamPart(), []))
        parts[DEFAULT_TEAM] = (part, [*users, owner])
    return tuple(_team(name, part, users) for name, (part, users) in parts.items())


def _team(name: str, part: TeamPart, users: list[str]) -> Team:
    limits = part.limits
    hours = limits.gpu_hours
    return Team(
        name=name,
        users=tuple(users),
        share=part.share,
        gpu_hours=GpuHourCap(Decimal(f"{hours.hours:.15g}"), hours.per) if hours else None,
        running_jobs=limits.running_jobs,
        submitted_jobs=limits.submitted_jobs,
        gpus=limits.gpus,
    )


def _users(file: ClusterFile, teams: Iterable[Team], owner: str) -> tuple[User, ...]:
    accounts: dict[str, list[str]] = {owner: []}
    for team in teams:
        for name in team.users:
            accounts.setdefault(name, []).append(team.name)
    return tuple(_user(file, name, found, owner) for name, found in accounts.items())


def _user(file: ClusterFile, name: str, accounts: list[str], owner: str) -> User:
    part = file.users.get(name)
    keys = [*(file.ssh_keys if name == owner else ()), *(part.ssh_keys if part else ())]
    return User(name, tuple(dict.fromkeys(keys)), tuple(accounts), admin=name == owner)


def _hosts(file: ClusterFile, slots: tuple[Slot, ...]) -> tuple[Host, ...]:
    names = (f"{file.name}-head", *(slot.name for slot in slots))
    # More machines than places are allowed: the rest waits for the cluster to grow.
    return tuple(
        Host(name, part.address, part.user, part.port, part.key or "")
        for name, part in zip(names, file.hosts, strict=False)
    )
