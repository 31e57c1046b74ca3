"""Capacity: how full a cluster is, how long jobs of each size wait, and how fragmented its free GPUs are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from headway.domain.billing import DAY_S

# Jobs by size: (GPUs from, words).
SIZES = ((0, "no GPU"), (1, "1 GPU"), (2, "2 to 8"), (9, "9 to 64"), (65, "more than 64"))
PERCENTILES = (50, 90, 99)


def size_of(gpus: int) -> str:
    return next(words for least, words in reversed(SIZES) if gpus >= least)


@dataclass(frozen=True, slots=True)
class Ends:
    """Of the runs that began (or ended) between two marks: the sum of their units, and of units times that moment."""

    units: float
    unit_moments: float


def held_between(marks: Sequence[int], began: Mapping[int, Ends], ended: Mapping[int, Ends]) -> list[float]:
    """Unit-seconds held between each two marks. `began` and `ended` by the number of the stretch (marks[i] to marks[i + 1])
    that the moment lies in; -1 for before the first mark. Needs two sums a stretch, not a look at each run. Whole where the
    sums are."""
    held: list[float] = [0] * (len(marks) - 1)
    for sign, moments in ((1, began), (-1, ended)):
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


class Stretches:
    """Unit-seconds between each two marks, of stretches of time that are added one by one or as sums. Moments count from the
    first mark, so that sums of many stay exact."""

    def __init__(self, marks: range) -> None:
        self._first, self._marks = marks[0], range(0, marks[-1] - marks[0] + 1, marks.step)
        self._began: dict[int, tuple[float, float]] = {}
        self._ended: dict[int, tuple[float, float]] = {}

    def add(self, start: int, end: int, units: float) -> None:
        """What there was of them from `start` until `end`; negative ones are taken away."""
        if end > start:
            for moment, ends in ((start - self._first, False), (end - self._first, True)):
                self.add_ends(max(-1, moment // self._marks.step), units, units * moment, ends=ends)

    def add_ends(self, place: int, units: float, unit_moments: float, *, ends: bool) -> None:
        """The sums of beginnings (or ends) in a stretch: -1 before the first mark."""
        into = self._ended if ends else self._began
        was = into.get(place, (0, 0))
        into[place] = (was[0] + units, was[1] + unit_moments)

    def seconds(self) -> list[float]:
        began, ended = ({at: Ends(*sums) for at, sums in one.items()} for one in (self._began, self._ended))
        return held_between(self._marks, began, ended)


HALF_S = 1800  # what is kept of days: hours of every zone but a few begin with one


@dataclass(frozen=True, slots=True)
class Cover:
    """Of the stretches between marks, by number: those that lie wholly in days of which each half hour is known, and the marks
    of the others, as far as they follow each other, by the number of their first."""

    marks: range
    known: tuple[int, ...]
    rest: tuple[tuple[int, range], ...]

    def seconds(self, kept: Mapping[int, float], parts: Iterable[Sequence[float]]) -> list[float]:
        """Of each stretch: `kept` of half hours by their beginnings, `parts` of each of `rest`."""
        found: list[float] = [0] * (len(self.marks) - 1)
        for i in self.known:
            found[i] = sum(kept.get(at, 0) for at in range(self.marks[i], self.marks[i + 1], HALF_S))
        for (first, _), part in zip(self.rest, parts, strict=True):
            found[first : first + len(part)] = part
        return found


def cover(marks: range, until: int, days: Collection[int]) -> Cover:
    """`days`: beginnings of those that are known. A stretch that goes on after `until` is not."""
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
    """(beginning, seconds) of each half hour of a day."""
    return zip(range(day, day + DAY_S, HALF_S), seconds, strict=True)


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


@dataclass(frozen=True, slots=True)
class Fragments:
    """GPU-seconds between each two marks that no job held on nodes that worked (`free`), and those of them on nodes of which a
    job held other GPUs (`fragmented`): a job of whole nodes could not have had these."""

    free: tuple[float, ...]
    fragmented: tuple[float, ...]

    @property
    def share(self) -> float | None:
        """Of the free GPU time, 0 to 1; None where none was free."""
        whole = sum(self.free)
        return sum(self.fragmented) / whole if whole else None


def fragments(
    works: Sequence[float], touched: Sequence[float], away: Sequence[float], held: Sequence[float]
) -> Fragments:
    """GPU-seconds in each stretch: `works` of nodes while they were there and neither down, drained nor spare; `touched` of such
    nodes, with all their GPUs, while a job held one or more of them; `held` by jobs, `away` what of it was on nodes that did not
    work. Of two runs that follow each other both may claim a second: nothing becomes less than none by that."""
    free, parts = [], []
    for there, both, out, used in zip(works, touched, away, held, strict=True):
        free.append(max(0.0, there - used + out))
        parts.append(min(free[-1], max(0.0, both - used + out)))
    return Fragments(tuple(free), tuple(parts))
