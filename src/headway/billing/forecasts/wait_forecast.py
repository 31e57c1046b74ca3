"""Waits to expect: those of past days on which the GPUs were as fully allocated. Pure.

How long jobs wait depends on the load far from evenly: hardly at all while GPUs are free, and steeply where they are not. So
waits are not extrapolated: a day that is expected to be 90 % allocated has the waits of the days that were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

LOADS = (0.0, 0.7, 0.85, 0.95)  # smallest share of allocated GPUs of each class of days


def load_class(share: float) -> int:
    """Returns the index in LOADS of a day with this share of allocated GPUs."""
    return max(index for index, least in enumerate(LOADS) if share >= least or index == 0)


def expected_waits(
    waits: Mapping[int, Mapping[int, int]], past: Sequence[float | None], coming: Sequence[float]
) -> Counter[int]:
    """Returns the seconds to expect, with weights. `waits`: by day (index in `past`) the seconds waited and the number of runs.
    `past` and `coming`: the share of allocated GPUs of each day, None for a day without machines, which does not count. A
    coming day counts as much as its runs did on a mean day of its class; without a day of that class the nearest one counts,
    the fuller of two."""
    days_of: dict[int, list[int]] = {}
    for day, share in enumerate(past):
        if share is not None:
            days_of.setdefault(load_class(share), []).append(day)
    found: Counter[int] = Counter()
    for wanted, count in Counter(load_class(share) for share in coming).items():
        if not days_of:
            break
        known = min(days_of, key=lambda one: (abs(one - wanted), -one))
        for day in days_of[known]:
            for waited, runs in waits.get(day, {}).items():
                found[waited] += runs * count * 1000 // len(days_of[known])
    return found
