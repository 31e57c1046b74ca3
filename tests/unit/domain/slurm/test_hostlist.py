"""Numbers become ranges, as Slurm writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.domain.slurm.hostlist import compress_numbers


@given(st.sets(st.integers(0, 200)))
def test_compress_numbers_keeps_each_number_once(numbers: set[int]) -> None:
    found = set()
    for part in filter(None, compress_numbers(numbers).split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    assert found == numbers
