"""Drift: how a running cluster differs from its file, found by planning the file that was applied. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from headway.domain.changeset import ASK_FROM, Change, ChangeSet
from headway.domain.slurm.hostlist import compress
from headway.schemas.clusters import DriftOut

MOST_NAMED = 20  # objects that a report names


def drift_changes(changes: ChangeSet, out_of_service: Collection[str]) -> tuple[Change, ...]:
    """Returns the changes that would undo what was changed by hand. `out_of_service`: machines with an open incident;
    their repair sets them up again. Missing machines and other node images are left to repairs and rollouts."""
    return tuple(
        change
        for change in changes.changes
        if change.where not in out_of_service and not change.kind.startswith(("machine.", "setting."))
    )


def disturbs_work(changes: Iterable[Change]) -> bool:
    """Returns whether an apply of these changes needs a confirmation."""
    return any(change.disturbs in ASK_FROM for change in changes)


def drift_report(changes: Collection[Change], checked_at: float) -> DriftOut:
    """Returns the report on these changes; `checked_at` in unix seconds."""
    places: dict[str, dict[str, None]] = {}
    for change in changes:
        places.setdefault(change.what, {})[change.where] = None
    named = [
        what if what in where or set(where) == {"cluster"} else f"{what} on {compress(where)}"
        for what, where in islice(places.items(), MOST_NAMED)
    ]
    return DriftOut(checked_at=checked_at, changes=len(changes), objects=named, disturbs_work=disturbs_work(changes))
