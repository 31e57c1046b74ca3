"""Shows a ChangeSet as a table with one row for all changes of a kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.changeset import ASK_FROM
from headway.domain.slurm.hostlist import compress
from headway.schemas.clusters import ChangeOut, ChangeSetOut

THINGS = 4  # objects named for a group of changes; the rest is counted


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes of one kind with the same effect."""

    kind: str
    count: int
    where: str
    things: str
    disturbs: str
    asks_confirmation: bool
    diff: tuple[str, ...]


def grouped(changes: ChangeSetOut) -> list[ChangeGroup]:
    """Returns the changes grouped by kind and effect, so that 1,000 nodes need as few rows as four."""
    found: dict[tuple[str, str], list[ChangeOut]] = {}
    for change in changes.changes:
        found.setdefault((change.kind, change.disturbs), []).append(change)
    asking = {str(disturbance) for disturbance in ASK_FROM}
    return [_group(kind, disturbs, some, disturbs in asking) for (kind, disturbs), some in found.items()]


def _group(kind: str, disturbs: str, some: list[ChangeOut], asks: bool) -> ChangeGroup:
    machines = dict.fromkeys(change.where for change in some if change.where and change.where != "cluster")
    things = list(dict.fromkeys(change.what for change in some if change.what and change.what != change.where))
    named = ", ".join(things[:THINGS]) + (f" and {len(things) - THINGS} more" if len(things) > THINGS else "")
    diffs: dict[tuple[str, ...], str] = {}
    for change in some:
        if change.diff:
            diffs.setdefault(tuple(change.diff), f"{change.what} on {change.where}")
    lines = [line for diff, title in list(diffs.items())[:12] for line in (f"  {title}", *diff)]
    return ChangeGroup(kind, len(some), compress(machines) or "the cluster", named, disturbs, asks, tuple(lines[:400]))
