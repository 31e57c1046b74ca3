"""The mean, the forecast and the end of a budget, for steps of a day."""

from __future__ import annotations

from fractions import Fraction

from headway.billing.spending import Step, forecast, mean_per_second, spent_at

DAY = 86_400


def days(*amounts: int) -> list[Step]:
    return [Step(i * DAY, (i + 1) * DAY, Fraction(amount)) for i, amount in enumerate(amounts)]


def test_forecast_continues_the_mean_of_the_last_seven_days() -> None:
    steps = days(0, 0, 0, 70, 70, 70, 70, 70, 70, 70)
    assert mean_per_second(steps, 10 * DAY) == Fraction(70, DAY)
    assert forecast(steps, 10 * DAY, 30 * DAY) == 490 + 20 * 70
    assert forecast(steps, 10 * DAY, 9 * DAY) == 490, "a period that is over has no forecast"


def test_mean_counts_the_day_so_far_and_no_time_before_the_first_machine() -> None:
    noon = 2 * DAY + DAY // 2
    assert mean_per_second(days(0, 0, 12), noon, since=2 * DAY) == Fraction(24, DAY)
    assert mean_per_second(days(0, 5, 12), noon, since=DAY + DAY // 2) == Fraction(17, DAY)
    assert mean_per_second([], noon) == 0
    assert mean_per_second(days(0), 0) == 0, "no second has passed"


def test_mean_reaches_into_the_period_before() -> None:
    before, steps = days(*[24] * 30), [Step(30 * DAY, 31 * DAY, Fraction(1))]
    hour = 30 * DAY + 3600
    assert forecast(steps, hour, 60 * DAY, before=before) == 30 * 24


def test_step_that_began_more_than_seven_days_ago_counts_in_part() -> None:
    week = 7 * DAY
    steps = [Step(0, week, Fraction(70)), Step(week, 2 * week, Fraction(6))]
    assert mean_per_second(steps, week + 2 * DAY) == Fraction(50 + 6, week)
    assert mean_per_second(steps, week + 2 * DAY, since=DAY) == (Fraction(70 * 5, 6) + 6) / week


def test_budget_is_spent_when_the_mean_reaches_its_limit() -> None:
    steps = days(10, 10, 10)
    assert spent_at(steps, Fraction(50), 3 * DAY, 30 * DAY) == 5 * DAY
    assert spent_at(steps, Fraction(50), 3 * DAY, 4 * DAY) is None, "not in this period"
    assert spent_at(steps, Fraction(30), 3 * DAY, 30 * DAY) is None, "it is spent already"
    assert spent_at(days(0, 0), Fraction(30), 2 * DAY, 30 * DAY) is None
