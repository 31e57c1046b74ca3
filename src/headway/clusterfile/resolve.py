"""Builds a domain.Cluster from a cluster file without faults: every default is filled in."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from decimal import Decimal

from headway.catalog.node_images import IMAGES
from headway.catalog.providers import PROVIDERS
from headway.clusterfile import groups, partition_tiers, topology
from headway.clusterfile.draft import partitions_of
from headway.clusterfile.models.backup import BackupPart, KeyPart
from headway.clusterfile.models.cloud import resolve_cloud
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.costs import CostPart
from headway.clusterfile.models.drift import resolve_drift
from headway.clusterfile.models.gpu_driver import resolve_gpu_driver
from headway.clusterfile.models.groups import GroupPart
from headway.clusterfile.models.health import FABRIC_TEST_EVERY_S, HealthPart
from headway.clusterfile.models.hosts import HostPart
from headway.clusterfile.models.network import resolve_network, resolve_team_network
from headway.clusterfile.models.scheduling.job_limits import resolve_job_limits, resolve_user_limits, resource_limits
from headway.clusterfile.models.scheduling.partitions import PartitionPart
from headway.clusterfile.models.scheduling.qos import resolve_qos
from headway.clusterfile.models.scheduling.reservations import resolve_reservations
from headway.clusterfile.models.software.containers import SignaturesPart
from headway.clusterfile.models.software.environments import resolve_environments
from headway.clusterfile.models.software.packages import resolve_packages
from headway.clusterfile.models.software.scripts import resolve_scripts
from headway.clusterfile.models.storage import MountedVolumePart
from headway.clusterfile.models.teams import BudgetPart, TeamPart, resolve_member_limits
from headway.clusterfile.rules.partition_rules import preemption_rules
from headway.clusterfile.rules.storage_rules import dataset_mount
from headway.domain.billing.cost_settings import CostSettings, InvoiceSettings
from headway.domain.cluster import (
    Alerts,
    BackupRule,
    Cluster,
    Firewall,
    Health,
    Host,
    KeySource,
    Partition,
    Plan,
    Slot,
    StallRule,
    head_names,
)
from headway.domain.machines.image_signatures import SignaturePolicy, SignatureRule
from headway.domain.machines.machine import Jump
from headway.domain.storage.folders import Dataset, StorageFolders, Volume
from headway.domain.teams import Budget, GpuHourCap, Team, User, with_subteams
from headway.validation.field_types import UNLIMITED

DEFAULT_TEAM = "default"


def build_cluster(file: ClusterFile, catalogue: Mapping[str, Plan], owner: str) -> Cluster:
    """Returns the resolved cluster. `owner` always has an account and the file's `ssh_keys`, and is the admin."""
    parts = groups.parts_of(file)
    sizes = {name: groups.max_nodes(part) + part.spares for name, part in parts.items()}
    slots, switches = topology.lay_out_fabric(file.name, file.fabric, sizes)
    teams = _teams(file, owner)
    return Cluster(
        name=file.name,
        provider=PROVIDERS[file.provider],
        image=file.image,
        slurm_version=IMAGES[file.image].slurm.name,
        groups=tuple(
            groups.build_group(
                name, part, catalogue[part.plan], tuple(slot.name for slot in slots if slot.group == name)
            )
            for name, part in parts.items()
        ),
        slots=slots,
        switches=switches,
        storage=_storage(file),
        partitions=_partitions(file, slots),
        teams=teams,
        users=_users(file, teams, owner),
        qos=resolve_qos(file.qos, teams),
        reservations=resolve_reservations(file.reservations, slots, teams),
        slurm=dict(file.slurm),
        hosts=_hosts(file, slots),
        departed_jobs=file.departures.jobs,
        mail_relay=file.mail.relay if file.mail else "",
        alerts=Alerts(file.alerts.webhook or "", file.alerts.chat or "", file.alerts.mail or ""),
        health=health_settings(file.health),
        max_usd_per_hour=None if file.cost.usd_per_hour is None else Decimal(str(file.cost.usd_per_hour)),
        containers=file.containers.backend or "builtin",
        image_signatures=_signatures(file.containers.signatures),
        firewall=Firewall(tuple(file.firewall.ssh_from)),
        backup=_backup(file.backup),
        drift=resolve_drift(file.drift),
        munge_key=_key(file.secrets.munge),
        costs=_costs(file.cost),
        controllers=file.controllers,
        environments=resolve_environments(file.environments, real_gpus=_has_real_gpus(file, parts, catalogue)),
        environment=file.environment or "",
        container_image=file.container_image or "",
        mlflow=file.mlflow,
        pbs_variables=file.pbs_variables,
        packages=resolve_packages(file.packages),
        gpu_driver=resolve_gpu_driver(file.gpu),
        network=resolve_network(file.network),
        cloud=resolve_cloud(file.cloud),
        scripts=resolve_scripts(file.scripts),
    )


def _signatures(part: SignaturesPart | None) -> SignaturePolicy:
    if part is None:
        return SignaturePolicy()
    rules = []
    for scope, rule in sorted(part.registries.items()):
        key = base64.b64encode(rule.sigstore_key.encode()).decode() if rule.sigstore_key else ""
        rules.append(SignatureRule(scope, rule.policy or "signed", key))
    return SignaturePolicy(part.default, tuple(rules))


def _has_real_gpus(file: ClusterFile, parts: Mapping[str, GroupPart], catalogue: Mapping[str, Plan]) -> bool:
    simulated = PROVIDERS[file.provider].simulates_hardware
    return not simulated and any(catalogue[part.plan].gpus for part in parts.values())


def _costs(part: CostPart) -> CostSettings:
    price = part.usd_per_kwh
    return CostSettings(
        timezone=part.timezone,
        idle=part.idle,
        spare=part.spare,
        broken=part.broken,
        fixed=part.fixed,
        fixed_usd_per_hour={name: Decimal(str(usd)) for name, usd in sorted(part.fixed_usd_per_hour.items())},
        invoice=InvoiceSettings(
            tuple(part.invoice.issuer.strip().splitlines()),
            tuple(part.invoice.recipient.strip().splitlines()),
            Decimal(str(part.invoice.tax_percent)),
            part.invoice.due_days,
            tuple(part.invoice.note.strip().splitlines()),
        ),
        pue=part.pue,
        usd_per_kwh=None if price is None else Decimal(str(price)),
    )


def _backup(part: BackupPart | None) -> BackupRule | None:
    return None if part is None else BackupRule(part.to, part.every, part.keep, part.key_file)


def _key(part: KeyPart | None) -> KeySource | None:
    return None if part is None else KeySource(part.file or "", tuple(part.command or ()))


def health_settings(part: HealthPart) -> Health:
    """Returns the settings for faults and repairs."""
    return Health(
        xid_classes={int(code): kind for code, kind in part.xid.items()},
        act=part.act,
        tries=part.tries,
        flaky_score=part.flaky_nodes.score,
        flaky_days=part.flaky_nodes.days,
        reserve_flaky_nodes=part.flaky_nodes.reserve,
        silent_share=part.silent_share,
        warning_s=part.warning,
        stall=StallRule(part.stall.after, part.stall.requeue),
        idle=StallRule(part.idle.after, part.idle.cancel),
        fabric_test_every_s=FABRIC_TEST_EVERY_S.get(part.fabric_test or "", 0),
    )


def _storage(file: ClusterFile) -> StorageFolders:
    return StorageFolders(
        home_quota=file.storage.home.quota,
        scratch_quota=file.storage.scratch.quota,
        datasets=tuple(
            Dataset(part.name, (part.path or "").rstrip("/"), dataset_mount(part), part.read_only)
            for part in file.storage.datasets
        ),
        volumes=tuple(_volume(part) for part in file.storage.volumes),
        state=(file.storage.state or "").rstrip("/"),
    )


def _volume(part: MountedVolumePart) -> Volume:
    kind, source, *options = part.mount.split()
    return Volume(part.name, part.path.rstrip("/"), kind, source, tuple(options[0].split(",")) if options else ())


def _partitions(file: ClusterFile, slots: tuple[Slot, ...]) -> tuple[Partition, ...]:
    parts, parents = partitions_of(file), {name: part.parent or "" for name, part in file.teams.items()}
    tier_of = partition_tiers.assign_tiers(preemption_rules(file))[0]
    preempted = {name for part in parts.values() for name in part.preempts}
    default = next((name for name, part in parts.items() if part.default), next(iter(parts)))
    return tuple(
        Partition(
            name=name,
            nodes=_nodes(part, slots),
            default=name == default,
            tier=tier_of.get(name, partition_tiers.LOWEST),
            max_time_s=_limit(part.max_time),
            default_time_s=_limit(part.default_time),
            preempts=tuple(part.preempts),
            preemptable=name in preempted,
            grace_s=part.grace_time,
            teams=with_subteams(part.teams, parents),
            slurm=dict(part.slurm),
            environment=part.environment or "",
            container_image=part.container_image or "",
            per_user=resolve_user_limits(part.per_user),
            limits=resolve_job_limits(part.limits),
            per_job=resource_limits(part.limits.per_job),
        )
        for name, part in parts.items()
    )


def _nodes(part: PartitionPart, slots: tuple[Slot, ...]) -> tuple[str, ...]:
    if part.groups:
        return tuple(slot.name for slot in slots if slot.group in part.groups)
    # Without a number the partition has all slots: also spares, which may replace any node, and slots added by scaling.
    return tuple(slot.name for slot in slots[: part.nodes])


def _limit(seconds: int | None) -> int | None:
    return None if seconds in (None, UNLIMITED) else seconds


def _teams(file: ClusterFile, owner: str) -> tuple[Team, ...]:
    parts = {name: (part, list(part.users)) for name, part in file.teams.items()}
    if not parts:
        parts[DEFAULT_TEAM] = (TeamPart(), [owner, *(name for name in file.users if name != owner)])
    elif not any(owner in users for _, users in parts.values()):
        part, users = parts.get(DEFAULT_TEAM, (TeamPart(), []))
        parts[DEFAULT_TEAM] = (part, [*users, owner])
    return tuple(_team(file, name, part, users) for name, (part, users) in parts.items())


def _team(file: ClusterFile, name: str, part: TeamPart, users: list[str]) -> Team:
    limits = part.limits
    hours = limits.gpu_hours
    return Team(
        name=name,
        users=tuple(users),
        leads=tuple(part.leads),
        share=part.share,
        gpu_hours=GpuHourCap(Decimal(f"{hours.hours:.15g}"), hours.per) if hours else None,
        running_jobs=limits.running_jobs,
        submitted_jobs=limits.submitted_jobs,
        **resource_limits(limits),
        gpu_parts=dict(limits.gpu_parts),
        per_user=resolve_member_limits(limits.per_user),
        budget=_budget(part.budget) if part.budget else None,
        environment=part.environment or "",
        container_image=part.container_image or "",
        network=resolve_team_network(part.network, file.network),
        default_qos=part.default_qos or "",
        own_qos=part.own_qos,
        parent=part.parent or "",
        user_limits={user: resolve_member_limits(each) for user, each in sorted(limits.users.items())},
    )


def _budget(part: BudgetPart) -> Budget:
    unit, limit = ("usd", part.usd) if part.usd is not None else ("gpu_hours", part.gpu_hours)
    return Budget(unit, Decimal(f"{limit:.15g}"), part.per, part.warn, part.cap)


def _users(file: ClusterFile, teams: Iterable[Team], owner: str) -> tuple[User, ...]:
    accounts: dict[str, list[str]] = {owner: []}
    for team in teams:
        for name in team.users:
            accounts.setdefault(name, []).append(team.name)
    return tuple(_user(file, name, found, owner) for name, found in accounts.items())


def _user(file: ClusterFile, name: str, accounts: list[str], owner: str) -> User:
    part = file.users.get(name)
    keys = [*(file.ssh_keys if name == owner else ()), *(part.ssh_keys if part else ())]
    uid = part.uid if part else None
    return User(name, tuple(dict.fromkeys(keys)), tuple(accounts), admin=name == owner, uid=uid)


def _hosts(file: ClusterFile, slots: tuple[Slot, ...]) -> tuple[Host, ...]:
    """Returns the heads first, then the machines of the slots in their order. Further machines are a reserve without a
    name."""
    rented = {name for name, part in file.groups.items() if part.provider is not None}
    names = (*head_names(file.name, file.controllers), *(slot.name for slot in slots if slot.group not in rented))
    heads = sorted(file.hosts, key=lambda part: ("head", None, "node").index(part.role))[: file.controllers]
    parts = [*heads, *(part for part in file.hosts if part not in heads)]
    return tuple(_one_host(name, part) for name, part in zip((*names, *[""] * len(parts)), parts, strict=False))


def _one_host(name: str, part: HostPart) -> Host:
    way = part.jump
    jump = Jump(way.address, way.user, way.port, way.key or part.key or "", way.host_key or "") if way else None
    return Host(
        name=name,
        address=part.address,
        user=part.user,
        port=part.port,
        key=part.key or "",
        sudo_password=part.sudo_password or "",
        jump=jump,
        host_key=part.host_key or "",
        run_in=part.run_in or "",
        container_port=part.container_port,
    )
