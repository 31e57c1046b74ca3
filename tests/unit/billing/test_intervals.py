"""Intervals of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.billing import intervals


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))),
)
def test_interval_operations_match_sets_of_seconds(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    def each(found: list[tuple[int, int]]) -> set[int]:
        return {second for start, end in found for second in range(start, end)}

    a, b = intervals.merge_spans(one), intervals.merge_spans(other)
    assert each(a) == each(one)
    assert each(intervals.intersect_spans(a, b)) == each(one) & each(other)
    assert each(intervals.subtract_spans(a, b)) == each(one) - each(other)
    assert intervals.seconds(a) == len(each(one))
