"""What the server itself goes by: settings that stand in no machine's file, so that nothing else shows their change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from headway.domain.change import Change
from headway.domain.cluster import BackupRule, Cluster, StallRule


def settings_changed(before: Cluster | None, after: Cluster) -> tuple[Change, ...]:
    """A change a setting, carried out by keeping the new file. () for a cluster that is not there yet."""
    if before is None:
        return ()
    was, now = dict(_settings(before)), dict(_settings(after))
    return tuple(
        Change("setting.keep", "cluster", name, f"{_word(was[name])} becomes {_word(now[name])}")
        for name in now
        if was[name] != now[name]
    )


def _settings(cluster: Cluster) -> Iterator[tuple[str, object]]:
    for field in fields(cluster.health):
        yield f"health.{field.name}", getattr(cluster.health, field.name)
    yield "departures.jobs", cluster.departed_jobs
    yield "backup", cluster.backup


def _word(value: object) -> str:
    if isinstance(value, BackupRule):
        return f"every {value.every_s} s to {value.to}, {value.keep} kept"
    if isinstance(value, StallRule):
        return f"{value.after_s} s{', acts' if value.acts else ''}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {one}" for key, one in sorted(value.items())) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
