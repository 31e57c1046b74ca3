"""Time spans as (start, end) pairs of whole seconds; the end is not included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Returns the union: sorted, without empty spans; spans that overlap or touch are joined."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def intersect_spans(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Returns the intersection. Both arguments must be as `merge_spans` returns them."""
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def subtract_spans(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Returns the parts of `one` that are not in `other`. Both arguments must be as `merge_spans` returns them."""
    found: list[Span] = []
    for start, end in one:
        at = start
        for begun, done in other:
            if done <= at or begun >= end:
                continue
            if begun > at:
                found.append((at, begun))
            at = max(at, done)
        if at < end:
            found.append((at, end))
    return found


def seconds(spans: Iterable[Span]) -> int:
    """Returns the total length of the spans; overlaps count more than once."""
    return sum(end - start for start, end in spans)
