"""How full a cluster is, how long jobs of a size wait, and whether its free GPUs lie together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Jobs by size: (GPUs from, words).
SIZES = ((0, "no GPU"), (1, "1 GPU"), (2, "2 to 8"), (9, "9 to 64"), (65, "more than 64"))
PERCENTILES = (50, 90, 99)


def size_of(gpus: int) -> str:
    return next(words for least, words in reversed(SIZES) if gpus >= least)


@dataclass(frozen=True, slots=True)
class Ends:
    """Of the runs that began (or ended) between two marks: the sum of their units, and of units times that moment."""

    units: int
    unit_moments: int


def held_between(marks: Sequence[int], began: Mapping[int, Ends], ended: Mapping[int, Ends]) -> list[int]:
    """Unit-seconds held between each two marks. `began` and `ended` by the number of the stretch (marks[i] to marks[i + 1])
    that the moment lies in; -1 for before the first mark. Needs two sums a stretch, not a look at each run."""
    held = [0] * (len(marks) - 1)
    for sign, moments in ((1, began), (-1, ended)):
        units = moment_sum = 0
        before = 0
        first = moments.get(-1, Ends(0, 0))
        units, moment_sum = first.units, first.unit_moments
        before = units * marks[0] - moment_sum
        for i in range(len(held)):
            here = moments.get(i, Ends(0, 0))
            units += here.units
            moment_sum += here.unit_moments
            after = units * marks[i + 1] - moment_sum
            held[i] += sign * (after - before)
            before = after
    return held


def percentile(counts: Iterable[tuple[int, int]], which: int) -> int | None:
    """The nearest-rank percentile of (value, how many) pairs; None of none."""
    known = sorted(counts)
    total = sum(count for _, count in known)
    rank = -(-total * which // 100)
    for value, count in known:
        rank -= count
        if rank <= 0:
            return value
    return None


@dataclass(frozen=True, slots=True)
class Free:
    """GPUs that no job holds on nodes that work: `together` of them are on nodes which are wholly free."""

    gpus: int
    together: int

    @property
    def fragmentation(self) -> float:
        """The share of free GPUs that no job of whole nodes can have, 0 to 1."""
        return 1 - self.together / self.gpus if self.gpus else 0.0


def free(nodes: Iterable[tuple[int, int]]) -> Free:
    """`nodes`: (GPUs, GPUs held) of each that works."""
    gpus = together = 0
    for there, held in nodes:
        gpus += there - held
        together += there if not held else 0
    return Free(gpus, together)
