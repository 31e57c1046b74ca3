"""Changes of settings that only the server uses, so that no file on a machine shows them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from headway.domain.changeset import Change
from headway.domain.cluster import MAIN_GROUP, BackupRule, Cluster, Host, KeySource, StallRule
from headway.domain.teams import Budget

NONE = "none"
FILE = "file"  # name of the change for a difference that no other change shows


def setting_changes(before: Cluster | None, after: Cluster) -> tuple[Change, ...]:
    """Returns one change per changed setting; apply only stores the new file. () for a cluster that does not exist
    yet."""
    if before is None:
        return ()
    was, now = dict(_settings(before)), dict(_settings(after))
    return tuple(
        Change("setting.keep", "cluster", name, f"{_word(was.get(name))} becomes {_word(now.get(name))}")
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    )


def file_change(before: Cluster | None, after: Cluster) -> tuple[Change, ...]:
    """Returns a change if the file differs in something that no other change shows. Without it an apply would end
    before the server has stored the file."""
    if before is None or _as_written(before) == _as_written(after):
        return ()
    return (Change("setting.keep", "cluster", FILE, "changed in the file; no machine changes"),)


def _as_written(cluster: Cluster) -> Cluster:
    """Returns the cluster without what no file contains: datasets that hold versions."""
    plain = tuple(dataset for dataset in cluster.storage.datasets if not dataset.versioned)
    return replace(cluster, storage=replace(cluster.storage, datasets=plain))


def _settings(cluster: Cluster) -> Iterator[tuple[str, object]]:
    """Yields the name and value of each setting."""
    for field in fields(cluster.health):
        yield f"health.{field.name}", getattr(cluster.health, field.name)
    yield "departures.jobs", cluster.departed_jobs
    yield "backup", cluster.backup
    for field in fields(cluster.drift):
        yield f"drift.{field.name}", getattr(cluster.drift, field.name)
    for team in cluster.teams:
        yield f"teams.{team.name}.leads", team.leads or None
        yield f"teams.{team.name}.budget", team.budget
        yield f"teams.{team.name}.limits.gpu_hours.per", team.gpu_hours.per if team.gpu_hours else None
    for field in fields(cluster.costs):
        if field.name != "invoice":
            yield f"cost.{field.name}", getattr(cluster.costs, field.name)
    for field in fields(cluster.costs.invoice):
        yield f"cost.invoice.{field.name}", getattr(cluster.costs.invoice, field.name)
    yield "cost.usd_per_hour", cluster.max_usd_per_hour
    for group in cluster.groups:
        place = "" if group.name == MAIN_GROUP else f"groups.{group.name}."
        yield f"{place}price", group.price_usd_per_node_hour
        yield f"{place}reserved", group.reserved
        yield f"{place}spot", group.spot
        yield f"{place}spot_fallback", "on-demand" if group.on_demand_fallback else None
        yield f"{place}queue_time", group.queue_time_s
        yield f"{place}usd_per_hour", group.max_usd_per_hour
    yield "secrets.munge", cluster.munge_key
    for host in cluster.hosts:
        # Named by its place: a host with another address is another machine, which is a change of its own.
        yield f"hosts.{host.name or host.address}", replace(host, address="") if host.name else host


def _word(value: object) -> str:
    if isinstance(value, BackupRule):
        return f"every {value.every_s} s to {value.to}, {value.keep} kept, sealed with {value.key_file}"
    if isinstance(value, StallRule):
        return f"{value.after_s} s{', acts' if value.acts else ''}"
    if isinstance(value, Budget):
        unit, cap = value.unit.replace("_", "-"), "" if value.cap else ", without a cap"
        return f"{value.limit:,} {unit} a {value.per}, warned of at {value.warn:.0%}{cap}"
    if isinstance(value, KeySource):
        return value.description
    if isinstance(value, Host):
        return _way(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {item}" for key, item in sorted(value.items())) or NONE
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or NONE
    if value is None:
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def _way(host: Host) -> str:
    """Returns how Headway signs in to the host, as text."""
    parts = [f"{host.user} at port {host.port}", f"key {host.key}" if host.key else "the cluster's key"]
    if host.sudo_password:
        parts.append(f"sudo's password from {host.sudo_password}")
    if host.jump is not None:
        parts.append(f"through {host.jump.user}@{host.jump.address}:{host.jump.port}")
    if host.host_key:
        parts.append(f"host key {host.host_key.split()[-1][-12:]}")
    if host.run_in:
        parts.append(f"run_in {host.run_in}")
    return ", ".join(parts)
