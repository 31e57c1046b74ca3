"""Capacity: the share of allocated GPUs, the waiting times of jobs by size, and the fragmentation of free GPUs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from headway.domain.billing.ledger import DAY_S

# Job sizes: (smallest number of GPUs, label).
SIZES = ((0, "no GPU"), (1, "1 GPU"), (2, "2 to 8"), (9, "9 to 64"), (65, "more than 64"))
PERCENTILES = (50, 90, 99)


def size_of(gpus: int) -> str:
    """Returns the label in `SIZES` of a job with this many GPUs."""
    return next(words for least, words in reversed(SIZES) if gpus >= least)


@dataclass(frozen=True, slots=True)
class Ends:
    """Sums over the runs that began (or ended) in one interval between two marks: their units, and units multiplied by
    the time at which each began (or ended)."""

    units: float
    unit_moments: float


def allocated_between(marks: Sequence[int], began: Mapping[int, Ends], ended: Mapping[int, Ends]) -> list[float]:
    """Returns the unit-seconds that were allocated to runs in each interval between two consecutive marks.

    `began` and `ended` are keyed by the index of the interval (marks[i] to marks[i + 1]) in which the run began or
    ended; -1 means before the first mark. This needs two sums per interval instead of a loop over every run. The
    results are integers if the sums are."""
    allocated: list[float] = [0] * (len(marks) - 1)
    for sign, moments in ((1, began), (-1, ended)):
        first = moments.get(-1, Ends(0, 0))
        units, moment_sum = first.units, first.unit_moments
        before = units * marks[0] - moment_sum
        for i in range(len(allocated)):
            here = moments.get(i, Ends(0, 0))
            units += here.units
            moment_sum += here.unit_moments
            after = units * marks[i + 1] - moment_sum
            allocated[i] += sign * (after - before)
            before = after
    return allocated


class Stretches:
    """Adds up unit-seconds in each interval between two marks. Time spans are added one at a time or as sums. Times
    are counted from the first mark, so that sums over many spans stay exact."""

    def __init__(self, marks: range) -> None:
        self._first, self._marks = marks[0], range(0, marks[-1] - marks[0] + 1, marks.step)
        self._began: dict[int, tuple[float, float]] = {}
        self._ended: dict[int, tuple[float, float]] = {}

    def add(self, start: int, end: int, units: float) -> None:
        """Adds `units` from `start` until `end` (unix seconds); negative units are subtracted."""
        if end > start:
            for moment, ends in ((start - self._first, False), (end - self._first, True)):
                self.add_ends(max(-1, moment // self._marks.step), units, units * moment, ends=ends)

    def add_ends(self, place: int, units: float, unit_moments: float, *, ends: bool) -> None:
        """Adds sums of the beginnings (or ends, if `ends`) that lie in interval `place`; -1 is before the first
        mark."""
        into = self._ended if ends else self._began
        was = into.get(place, (0, 0))
        into[place] = (was[0] + units, was[1] + unit_moments)

    def seconds(self) -> list[float]:
        """Returns the unit-seconds in each interval."""
        began, ended = (
            {at: Ends(*sums) for at, sums in sums_by_interval.items()}
            for sums_by_interval in (self._began, self._ended)
        )
        return allocated_between(self._marks, began, ended)


HALF_S = 1800  # Daily rollups are kept per half hour: hours begin on a half hour in all but a few time zones.


@dataclass(frozen=True, slots=True)
class Cover:
    """Which intervals between marks the daily rollups cover.

    `known` are the indexes of the intervals that lie entirely in days whose half hours are all stored. `rest` are the
    other intervals: for each unbroken sequence of them, the index of the first one and the marks of the sequence."""

    marks: range
    known: tuple[int, ...]
    rest: tuple[tuple[int, range], ...]

    def seconds(self, kept: Mapping[int, float], parts: Iterable[Sequence[float]]) -> list[float]:
        """Returns the seconds in each interval. `kept` maps the beginning of a half hour to its seconds; `parts` has
        the seconds per interval for each entry of `rest`, in the same order."""
        found: list[float] = [0] * (len(self.marks) - 1)
        for i in self.known:
            found[i] = sum(kept.get(at, 0) for at in range(self.marks[i], self.marks[i + 1], HALF_S))
        for (first, _), part in zip(self.rest, parts, strict=True):
            found[first : first + len(part)] = part
        return found


def cover(marks: range, until: int, days: Collection[int]) -> Cover:
    """Returns which of the intervals between `marks` the stored days cover. `days` are the beginnings of the stored
    days. An interval that ends after `until` is never covered."""
    whole = marks[0] % HALF_S == 0 and marks.step % HALF_S == 0

    def is_known(i: int) -> bool:
        halves = range(marks[i], marks[i + 1], HALF_S)
        return whole and marks[i + 1] <= until and all(at // DAY_S * DAY_S in days for at in halves)

    known = [is_known(i) for i in range(len(marks) - 1)]
    rest, at = [], 0
    for there, some in groupby(known):
        count = len(list(some))
        if not there:
            rest.append((at, marks[at : at + count + 1]))
        at += count
    return Cover(marks, tuple(i for i, there in enumerate(known) if there), tuple(rest))


def halves(day: int, seconds: Sequence[float]) -> Iterator[tuple[int, float]]:
    """Yields (beginning, seconds) for each half hour of a day that begins at `day`, unix seconds."""
    return zip(range(day, day + DAY_S, HALF_S), seconds, strict=True)


def percentile(counts: Iterable[tuple[int, int]], which: int) -> int | None:
    """Returns the nearest-rank percentile of (value, count) pairs, or None if there are none."""
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
    """GPUs on working nodes that are allocated to no job; `together` of them are on nodes that are entirely free."""

    gpus: int
    together: int

    @property
    def fragmentation(self) -> float:
        """Returns the share (0 to 1) of the free GPUs that a job of whole nodes cannot get."""
        return 1 - self.together / self.gpus if self.gpus else 0.0


def free(nodes: Iterable[tuple[int, int]]) -> Free:
    """Counts the free GPUs. `nodes` has (GPUs, allocated GPUs) for each working node."""
    gpus = together = 0
    for there, allocated in nodes:
        gpus += there - allocated
        together += there if not allocated else 0
    return Free(gpus, together)


@dataclass(frozen=True, slots=True)
class Fragments:
    """GPU-seconds per interval between two marks. `free`: allocated to no job, and their node worked. `fragmented`: the
    part of `free` on nodes where other GPUs were allocated, so that a job of whole nodes could not have used it."""

    free: tuple[float, ...]
    fragmented: tuple[float, ...]

    @property
    def share(self) -> float | None:
        """Returns the fragmented share of the free GPU time, 0 to 1, or None if no GPU was free."""
        whole = sum(self.free)
        return sum(self.fragmented) / whole if whole else None


def fragments(
    works: Sequence[float], touched: Sequence[float], away: Sequence[float], allocated: Sequence[float]
) -> Fragments:
    """Computes free and fragmented GPU-seconds for each interval.

    `works`: GPU-seconds of nodes while they existed and were not down, drained or spare. `touched`: GPU-seconds of all
    GPUs of such nodes while at least one of them was allocated. `allocated`: GPU-seconds allocated to jobs; `away`: the part of
    `allocated` on nodes that did not work. Two consecutive runs may both claim the same second, so results are limited to 0
    or more."""
    free, parts = [], []
    for there, both, out, used in zip(works, touched, away, allocated, strict=True):
        free.append(max(0.0, there - used + out))
        parts.append(min(free[-1], max(0.0, both - used + out)))
    return Fragments(tuple(free), tuple(parts))
