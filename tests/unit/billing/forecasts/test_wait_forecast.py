"""Waits to expect are those of days with the same load."""

from __future__ import annotations

from collections import Counter

import pytest

from headway.billing.capacity import percentile
from headway.billing.forecasts.wait_forecast import expected_waits, load_class


@pytest.mark.parametrize(("share", "index"), [(0, 0), (0.69, 0), (0.7, 1), (0.85, 2), (0.949, 2), (0.95, 3), (1.0, 3)])
def test_days_are_classed_by_their_load(share: float, index: int) -> None:
    assert load_class(share) == index


def test_full_days_to_come_have_the_waits_of_full_days() -> None:
    waits = {0: Counter({0: 10}), 1: Counter({3600: 10}), 2: Counter({0: 10})}
    past = [0.3, 0.97, 0.4]
    assert percentile(expected_waits(waits, past, [0.96, 0.99]).items(), 50) == 3600
    assert percentile(expected_waits(waits, past, [0.2]).items(), 90) == 0
    mixed = expected_waits(waits, past, [0.2, 0.2, 0.2, 0.98])
    assert (percentile(mixed.items(), 50), percentile(mixed.items(), 90)) == (0, 3600)


def test_load_that_was_never_seen_has_the_waits_of_the_nearest_the_fuller_of_two() -> None:
    waits = {0: Counter({1: 1}), 1: Counter({600: 1})}
    assert set(expected_waits(waits, [0.1, 0.9], [0.75])) == {600}
    assert set(expected_waits(waits, [0.1, 0.2], [0.99])) == {1, 600}


def test_nothing_is_expected_without_a_past_or_without_days_to_come() -> None:
    assert expected_waits({}, [], [0.5]) == Counter()
    assert expected_waits({0: Counter({5: 1})}, [0.5], []) == Counter()
