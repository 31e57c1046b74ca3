"""Cents."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headway.billing.money import apportion


@given(st.integers(-(10**9), 10**9), st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=40))
def test_apportioned_cents_sum_to_total_within_one_cent_each(total: int, weights: list[Fraction]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    if whole:
        assert all(abs(part - total * weight / whole) < 1 for part, weight in zip(parts, weights, strict=True))
