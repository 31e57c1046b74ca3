"""Computes partition tiers for Slurm's preempt/partition_prio, which preempts by tier only.

A job preempts jobs in *every* preemptable partition of a lower tier. So `preempts` lists can be granted only if tiers exist
under which each list is exactly the preemptable partitions below. With P the set of all listed partitions, for each
partition X:

    Y in preempts(X)          =>  tier(Y) < tier(X)
    Y in P, not in preempts(X) =>  tier(X) <= tier(Y)

These are difference constraints. If they contradict each other, the smallest contradiction is one of three, each with its
own message: a cycle, a missing step (X over Y over Z but not X over Z), or two lists neither of which contains the other.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LOWEST = 1


@dataclass(frozen=True, slots=True)
class PreemptionRule:
    """The preemption settings of one partition: existing names only, no repeats."""

    preempts: frozenset[str]
    tier: int | None


@dataclass(frozen=True, slots=True)
class TierConflict:
    """A contradiction between the lists. `field` is "preempts" or "tier" of `partition`."""

    partition: str
    field: str
    message: str
    hint: str = ""


def assign_tiers(wishes: Mapping[str, PreemptionRule]) -> tuple[dict[str, int], list[TierConflict]]:
    """Returns the lowest tiers that grant every list, or the conflicts that prevent it."""
    clashes = list(_clashes_of_lists(wishes))
    if clashes:
        return {}, clashes
    tiers = {name: wish.tier or LOWEST for name, wish in wishes.items()}
    victims = _victims(wishes)
    for _ in range(len(wishes) * 2 + 2):
        if not _raise_once(wishes, victims, tiers):
            break
    clashes = list(_clashes_of_tiers(wishes, victims, tiers))
    return ({}, clashes) if clashes else (tiers, [])


def _victims(wishes: Mapping[str, PreemptionRule]) -> list[str]:
    named = frozenset[str]().union(*(wish.preempts for wish in wishes.values()))
    return [name for name in wishes if name in named]


def _raise_once(wishes: Mapping[str, PreemptionRule], victims: list[str], tiers: dict[str, int]) -> bool:
    """Raises tiers that are too low and not fixed by the file. Returns whether any changed."""
    moved = False
    for name, wish in wishes.items():
        for victim in victims:
            if victim in wish.preempts:
                low, least = name, tiers[victim] + 1
            else:
                low, least = victim, tiers[name]
            if tiers[low] < least and wishes[low].tier is None:
                tiers[low] = least
                moved = True
    return moved


def _clashes_of_tiers(
    wishes: Mapping[str, PreemptionRule], victims: list[str], tiers: dict[str, int]
) -> Iterator[TierConflict]:
    for name, wish in wishes.items():
        for victim in victims:
            if victim in wish.preempts and tiers[name] <= tiers[victim]:
                yield TierConflict(
                    name,
                    "tier",
                    f"must be above the tier of {victim}, {tiers[victim]}, to preempt it",
                    f"give {tiers[victim] + 1} or more, or leave tier out",
                )
            elif victim != name and victim not in wish.preempts and tiers[name] > tiers[victim]:
                yield TierConflict(
                    name,
                    "tier",
                    f"is above the tier of {victim}, {tiers[victim]}, so it would preempt {victim} too: in Slurm a job preempts"
                    " every preemptable partition in a lower tier",
                    f"give {tiers[victim]} or less, or add {victim} to its preempts",
                )


def _clashes_of_lists(wishes: Mapping[str, PreemptionRule]) -> Iterator[TierConflict]:
    circle = _circle(wishes)
    if circle:
        yield TierConflict(
            circle[0],
            "preempts",
            f"has a cycle ({' -> '.join(circle)}): Slurm preempts by tier, and a tier can't be above itself",
            "remove one of them",
        )
        return
    reported: set[frozenset[str]] = set()
    for name, wish in wishes.items():
        for lower in sorted(wish.preempts):
            for missing in sorted(wishes[lower].preempts - wish.preempts):
                yield TierConflict(
                    name,
                    "preempts",
                    f"has {lower}, which preempts {missing}, but not {missing}: in Slurm a job preempts every"
                    f" preemptable partition in a lower tier, and {missing} is below {lower}",
                    f"add {missing}",
                )
        for other in _victims(wishes):
            lost = _lost(wishes, name, other)
            pair = frozenset((name, other))
            if lost and pair not in reported:
                reported.add(pair)
                yield TierConflict(
                    name,
                    "preempts",
                    f"has {lost} but not {other}, which Slurm can't express: a job preempts every preemptable partition"
                    f" in a lower tier, and {other} can't be above {lost} without preempting it",
                    f"add {other}, or let {other} preempt {lost} too",
                )


def _lost(wishes: Mapping[str, PreemptionRule], name: str, other: str) -> str:
    """Returns a partition below `name` that `other`, which is not below `name`, would also have to be above; "" if
    there is none."""
    if other == name or other in wishes[name].preempts:
        return ""
    below = wishes[name].preempts - wishes[other].preempts - {other}
    # A missing step is the same conflict and has a clearer message.
    steps = frozenset[str]().union(*(wishes[lower].preempts for lower in wishes[name].preempts))
    return "" if other in steps or not below else min(below)


def _circle(wishes: Mapping[str, PreemptionRule]) -> list[str]:
    """Returns the names of one cycle, the first repeated at the end, or []."""
    try:
        graphlib.TopologicalSorter({name: wish.preempts for name, wish in wishes.items()}).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []
