"""The changes of a ChangeSet in groups, as text and Markdown show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.domain.changeset import ASK_FROM, Disturbs
from headway.domain.slurm.hostlist import compress

if TYPE_CHECKING:
    from headway.schemas.clusters import ChangeOut

_ASK = {str(d) for d in ASK_FROM}
_WEIGHT = {str(d): weight for weight, d in enumerate(Disturbs)}


@dataclass(frozen=True, slots=True)
class KindRow:
    """All changes of one kind. `disturbs`: the strongest of their effects."""

    kind: str
    count: int
    where: str  # hostlist, or "cluster"
    disturbs: str
    objects: tuple[str, ...]  # what changes, each once

    @property
    def effect(self) -> str:
        """Returns the effect in words."""
        return "none" if self.disturbs == Disturbs.NOTHING else self.disturbs


@dataclass(frozen=True, slots=True)
class DisturbingRow:
    """The same disturbing change on one or several machines."""

    subject: str  # "file.write /etc/slurm/slurm.conf on demo-1-[1-4]"
    disturbs: str
    why: str


def kind_rows(changes: Sequence[ChangeOut]) -> list[KindRow]:
    """Returns a row per kind of change, in the order of the changes."""
    kinds: dict[str, list[ChangeOut]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    return [
        KindRow(
            kind,
            len(group),
            compress(dict.fromkeys(c.where for c in group if c.where and c.where != "cluster")) or "cluster",
            max((c.disturbs for c in group), key=lambda word: _WEIGHT.get(word, 0)),
            tuple(Counter(c.what for c in group if c.what and c.what != c.where)),
        )
        for kind, group in kinds.items()
    ]


def disturbing_rows(changes: Sequence[ChangeOut]) -> list[DisturbingRow]:
    """Returns the changes that need a confirmation; the same change on several machines is one row."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for c in changes:
        if c.disturbs in _ASK:
            what = "" if c.what == c.where else c.what
            groups.setdefault((c.kind, what, c.why, c.disturbs), []).append(c.where)
    rows = []
    for (kind, what, why, disturbs), where in groups.items():
        place = compress(dict.fromkeys(where))
        subject = " ".join(part for part in (kind, what, f"on {place}" if place != "cluster" else "") if part)
        rows.append(DisturbingRow(subject, disturbs, why))
    return rows
