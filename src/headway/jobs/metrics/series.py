"""Arrays of points (step, Unix seconds, value) and their summaries for charts. Pure.

A summary describes several consecutive points by six numbers: the last step and time, the lowest and highest finite value, their
mean, and how many values are not finite: NaN + 2^16 * inf + 2^32 * -inf."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

POINT = 3  # numbers of a point
SUMMARY = 6  # numbers of a summary
_INF, _MINUS_INF = 2**16, 2**32


@dataclass
class Series:
    """A metric for a chart. Where a point stands for several, `values` has their mean, `lows` and `highs` their range; None:
    no finite value. `not_finite` lists (step, "nan", "inf" or "-inf")."""

    points: int = 0  # how many points there are, before down-sampling
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    lows: list[float | None] = field(default_factory=list)
    highs: list[float | None] = field(default_factory=list)
    not_finite: list[tuple[int, str]] = field(default_factory=list)

    def add(self, summaries: Sequence[float]) -> None:
        """Adds summaries, one after the other in a flat sequence."""
        self.steps += map(int, summaries[0::SUMMARY])
        self.times += summaries[1::SUMMARY]
        kinds = summaries[5::SUMMARY]
        if any(kinds):
            self._mark(summaries[0::SUMMARY], kinds)
        for column, place in ((2, self.lows), (3, self.highs), (4, self.values)):
            numbers = summaries[column::SUMMARY]
            place += map(_finite, numbers) if any(kinds) else numbers

    def _mark(self, steps: Sequence[float], kinds: Sequence[float]) -> None:
        for step, packed in zip(steps, kinds, strict=True):
            count = int(packed)
            for word, some in (("nan", count % _INF), ("inf", count // _INF % _INF), ("-inf", count // _MINUS_INF)):
                if some:
                    self.not_finite.append((int(step), word))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def summarise(points: Sequence[float], size: int) -> array[float]:
    """Returns summaries of every `size` points of a flat sequence; the last one may stand for fewer."""
    steps, times, values = points[0::POINT], points[1::POINT], list(points[2::POINT])
    found = array("d")
    for begin in range(0, len(values), size):
        some = values[begin : begin + size]
        last = begin + len(some) - 1
        total, packed = sum(some), 0
        if not math.isfinite(total):
            some, packed = _only_finite(some)
            total = sum(some)
        low, high = (min(some), max(some)) if some else (math.nan, math.nan)
        mean = total / len(some) if some else math.nan
        found.extend((steps[last], times[last], low, high, mean, packed))
    return found


def merge_summaries(summaries: Sequence[float], size: int) -> array[float]:
    """Returns one summary for every `size` summaries that stand for equally many points."""
    lows, highs, means = (list(summaries[column::SUMMARY]) for column in (2, 3, 4))
    steps, times, packed = (summaries[column::SUMMARY] for column in (0, 1, 5))
    found = array("d")
    for begin in range(0, len(lows), size):
        end = min(begin + size, len(lows))
        low, high, mean = lows[begin:end], highs[begin:end], means[begin:end]
        kinds = sum(packed[begin:end])
        if kinds:
            low, high, mean = (_only_finite(column)[0] or [math.nan] for column in (low, high, mean))
        found.extend((steps[end - 1], times[end - 1], min(low), max(high), sum(mean) / len(mean), kinds))
    return found


def _only_finite(values: list[float]) -> tuple[list[float], int]:
    """Returns the finite values, and the packed number of the others."""
    finite = [value for value in values if math.isfinite(value)]
    nan = sum(1 for value in values if value != value)
    inf = sum(1 for value in values if value == math.inf)
    return finite, nan + _INF * inf + _MINUS_INF * (len(values) - len(finite) - nan - inf)
