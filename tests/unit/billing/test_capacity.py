"""Allocated and free GPUs, waits and sizes of jobs."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headway.billing import capacity
from headway.billing.capacity import Ends


@given(st.lists(st.tuples(st.integers(-500, 1500), st.integers(0, 800), st.integers(1, 9)), max_size=30))
def test_allocated_unit_seconds_follow_from_start_and_end_sums(runs: list[tuple[int, int, int]]) -> None:
    marks = [0, 100, 250, 400, 1000]

    def ends(which: int) -> dict[int, Ends]:
        found: dict[int, Ends] = {}
        for start, length, units in runs:
            at = (start, start + length)[which]
            if at >= marks[-1]:
                continue
            place = max((i for i, mark in enumerate(marks[:-1]) if at >= mark), default=-1)
            was = found.get(place, Ends(0, 0))
            found[place] = Ends(was.units + units, was.unit_moments + units * at)
        return found

    wanted = [
        sum(units * max(0, min(start + length, high) - max(start, low)) for start, length, units in runs)
        for low, high in itertools.pairwise(marks)
    ]
    assert capacity.allocated_between(marks, ends(0), ends(1)) == wanted


def test_percentiles_and_job_sizes_are_computed_from_counts() -> None:
    counts = [(10, 50), (20, 40), (300, 10)]
    assert [capacity.percentile(counts, which) for which in capacity.PERCENTILES] == [10, 20, 300]
    assert capacity.percentile([], 50) is None
    assert [capacity.size_of(gpus) for gpus in (0, 1, 8, 9, 64, 65, 4096)] == [
        "no GPU", "1 GPU", "2 to 8", "9 to 64", "9 to 64", "more than 64", "more than 64",
    ]  # fmt: skip


def test_fragmentation_counts_free_gpus_on_partly_used_nodes() -> None:
    found = capacity.free([(8, 0), (8, 6), (8, 2)])
    assert (found.gpus, found.together, found.fragmentation) == (16, 8, 0.5)
    assert capacity.free([]).fragmentation == 0
