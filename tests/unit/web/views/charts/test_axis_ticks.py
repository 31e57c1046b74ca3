"""Axes have round numbers."""

from __future__ import annotations

import pytest

from headway.web.views.charts.axis_ticks import even_ticks, log_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.299, 3.08, [1.0, 2.0, 3.0]),
        (0.0, 1.0, [0.0, 0.5, 1.0]),
        (-3.2, 41.0, [0.0, 20.0, 40.0]),
        (0.0311, 0.0329, [0.0315, 0.032, 0.0325]),
        (1999.0, 2001.0, [1999.0, 2000.0, 2001.0]),
        (2.0, 2.0, [2.0]),
    ],
)
def test_even_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert even_ticks(low, high) == ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0009, 1100.0, [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]),
        (0.9, 120.0, [1.0, 10.0, 100.0]),
        (3.0, 400.0, [5.0, 10.0, 20.0, 50.0, 100.0, 200.0]),
    ],
)
def test_logarithmic_ticks_are_powers_of_ten_or_round_between_them(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == ticks


def test_number_of_ticks_is_bounded() -> None:
    for high in (1.1, 3.3, 9.9, 47.0, 1e6, 1e-6):
        assert 3 <= len(even_ticks(0.0, high)) <= 11
    assert len(log_ticks(1e-12, 1e12)) <= 9
