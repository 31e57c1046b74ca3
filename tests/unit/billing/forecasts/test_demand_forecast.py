"""The forecast follows level, days of the week and trend, and its band holds what it promises."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing.forecasts.demand_forecast import (
    FEWEST_DAYS,
    HORIZON_DAYS,
    DayForecast,
    FillDates,
    Forecast,
    fill_dates,
    forecast_days,
)

WEEKDAYS = (1.2, 1.25, 1.2, 1.15, 1.0, 0.6, 0.6)
SHAPES: dict[str, Callable[[int], float]] = {
    "level": lambda day: 100.0,
    "weekdays": lambda day: 100.0 * WEEKDAYS[day % 7],
    "trend": lambda day: (100.0 + 2 * day) * WEEKDAYS[day % 7],
}


def noisy(shape: Callable[[int], float], days: int, seed: int, noise: float = 0.15) -> list[float]:
    made = random.Random(seed)
    return [max(0.0, shape(day) * made.gauss(1, noise)) for day in range(days)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_method_fits_the_shape_of_the_past_and_the_next_month_is_near(name: str, seed: int) -> None:
    found = forecast_days(noisy(SHAPES[name], 112, seed))
    assert found is not None
    assert found.method == name
    actual = [SHAPES[name](112 + day) for day in range(28)]
    missed = sum(abs(day.expected - was) for day, was in zip(found.days, actual, strict=False))
    assert missed / sum(actual) < 0.15


@pytest.mark.parametrize("name", SHAPES)
def test_band_holds_about_four_of_five_coming_days(name: str) -> None:
    inside = total = 0
    for seed in range(20):
        days = noisy(SHAPES[name], 140, seed)
        found = forecast_days(days[:112])
        assert found is not None
        for day, actual in zip(found.days, days[112:], strict=False):
            assert day.low is not None
            assert day.high is not None
            inside += day.low <= actual <= day.high
            total += 1
    assert 0.65 < inside / total < 0.95


def test_error_is_what_the_same_forecast_missed_in_the_past() -> None:
    found = forecast_days([100.0] * 21 + [50.0] * 7)
    assert found is not None
    assert found.method == "level"
    # origins after 14 and 21 days: 7 days of 100 hit and 7 of 50 missed by 50, then 7 of 50 missed by 50
    assert (found.tested_days, found.error) == (21, pytest.approx(700 / 1400))
    assert found.total_error is None, "no origin has four weeks after it"


def test_history_of_two_weeks_is_the_shortest() -> None:
    assert forecast_days([1.0] * (FEWEST_DAYS - 1)) is None
    found = forecast_days([1.0] * FEWEST_DAYS)
    assert found == Forecast((DayForecast(1.0),) * HORIZON_DAYS, "level")


def test_cluster_without_jobs_has_a_forecast_of_nothing() -> None:
    found = forecast_days([0.0] * 60)
    assert found is not None
    assert {(day.expected, day.low, day.high) for day in found.days} == {(0.0, 0.0, 0.0)}
    assert found.error == 0.0


def test_first_jobs_after_idle_weeks_have_no_error_as_a_share() -> None:
    found = forecast_days([0.0] * 28 + [24.0])
    assert found is not None
    assert found.days[0].expected > 0


@given(st.lists(st.floats(0, 1e6), min_size=FEWEST_DAYS, max_size=150))
def test_any_history_has_finite_days_in_their_band(history: list[float]) -> None:
    found = forecast_days(history)
    assert found is not None
    assert len(found.days) == HORIZON_DAYS
    for day in found.days:
        low, high = (0.0, float("inf")) if day.low is None or day.high is None else (day.low, day.high)
        assert 0 <= low <= day.expected + 1e-6
        assert day.expected <= high + 1e-6
        assert day.expected < 1e9
    assert found.error is None or found.error >= 0
    assert found.within is None or 0 <= found.within <= 1


def test_cluster_fills_when_the_mean_of_a_week_reaches_the_limit() -> None:
    days = tuple(DayForecast(float(day), day * 0.5, day * 2.0) for day in range(60))
    found = fill_dates(Forecast(days, "trend"), 20.0)
    # the mean of day n to n + 6 is n + 3 as expected, twice that at the upper end, half of it at the lower end
    assert found == FillDates(expected=17, earliest=7, latest=37)


def test_cluster_that_is_full_now_fills_today_and_a_large_one_never() -> None:
    flat = Forecast((DayForecast(10.0, 9.0, 11.0),) * 30, "level")
    assert fill_dates(flat, 10.0) == FillDates(expected=0, earliest=0, latest=None)
    assert fill_dates(flat, 100.0) == FillDates(None, None, None)
