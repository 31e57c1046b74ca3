"""Forecast of the GPU-hours that a cluster's jobs use by day, with its error measured on the past, and the day on which the
GPUs are all in use. Pure.

A forecast is the level of the last weeks, a factor for each day of the week, and at most a trend that slows down. Which of
these are taken is decided by how well each would have foretold the past (rolling origin: Tashman, "Out-of-sample tests of
forecasting accuracy", International Journal of Forecasting 16, 2000). The band holds the errors that were made there. Days
are UTC days, oldest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles

WEEK = 7
FEWEST_DAYS = 2 * WEEK  # of a history; with fewer days a day of the week was seen at most once
BACKTEST_DAYS = 4 * WEEK  # how far the past is forecast to measure the error
HISTORY_DAYS = 16 * WEEK  # that a forecast looks back
HORIZON_DAYS = 13 * WEEK
BAND = (10, 90)  # percentiles of the errors of the past
FULL = 0.95  # share of allocated GPUs from which on jobs wait for each other
_LEVEL_DAYS = 4 * WEEK
_TREND_WEEKS = 8
_DAMPING = 0.85  # of the trend's step from each week to the next (Gardner and McKenzie, 1985: 0.8 to 0.98 are usual)
_BETTER = 0.97  # a method with more parameters needs an error that is smaller by this factor


@dataclass(frozen=True, slots=True)
class DayForecast:
    """The expected value of one day, and the band in which four of five days lie; both None without a backtest."""

    expected: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """`days`: from the day after the history on. `method`: "level", "weekdays" or "trend". `error`: sum of the absolute errors
    of the backtest, divided by the sum of its days; `total_error`: the same of the sums of four weeks. `within`: share of the
    backtest's days inside the band that the errors of the other origins give. `tested_days`: days that the backtest compared.
    Without a backtest these are None and 0."""

    days: tuple[DayForecast, ...]
    method: str
    error: float | None = None
    total_error: float | None = None
    within: float | None = None
    tested_days: int = 0


@dataclass(frozen=True, slots=True)
class FillDates:
    """Index of the first day of a forecast on which the mean of seven days reaches a limit: if all goes as expected, at the
    upper end of the band, and at its lower end. None: not within the forecast."""

    expected: int | None
    earliest: int | None
    latest: int | None


Method = Callable[[Sequence[float], int], list[float]]


def forecast_days(history: Sequence[float], horizon: int = HORIZON_DAYS) -> Forecast | None:
    """Returns the forecast for the `horizon` days after the history. Values are 0 or more. Returns None for a history of fewer
    than FEWEST_DAYS days."""
    recent = history[-HISTORY_DAYS:]
    if len(recent) < FEWEST_DAYS:
        return None
    tests = {name: _backtest(recent, method) for name, method in _METHODS.items()}
    chosen = "level"
    for name, errors in tests.items():
        if errors and _error(errors) < _error(tests[chosen]) * _BETTER:
            chosen = name
    expected, errors = _METHODS[chosen](recent, horizon), tests[chosen]
    if not errors:
        return Forecast(tuple(DayForecast(value) for value in expected), chosen)
    relative = [one for of_origin in errors for one in _relative(of_origin)]
    level = fmean(expected)
    days = tuple(DayForecast(value, *_band(value, level, ahead, relative)) for ahead, value in enumerate(expected))
    whole = [
        [(sum(was for was, _ in one), sum(actual for _, actual in one))] for one in errors if len(one) == BACKTEST_DAYS
    ]
    return Forecast(
        days,
        chosen,
        _finite(_error(errors)),
        _finite(_error(whole)) if whole else None,
        _within(errors),
        sum(len(one) for one in errors),
    )


def fill_dates(forecast: Forecast, limit: float) -> FillDates:
    """Returns when the mean of seven days reaches the limit."""
    expected = [day.expected for day in forecast.days]
    low = [day.expected if day.low is None else day.low for day in forecast.days]
    high = [day.expected if day.high is None else day.high for day in forecast.days]
    return FillDates(_first_full(expected, limit), _first_full(high, limit), _first_full(low, limit))


def _level(history: Sequence[float], horizon: int) -> list[float]:
    return [fmean(history[-WEEK:])] * horizon


def _weekdays(history: Sequence[float], horizon: int) -> list[float]:
    """Returns the mean of the last four weeks times the factor of each day of the week."""
    level, factors = fmean(history[-_LEVEL_DAYS:]), _weekday_factors(history)
    return [level * factors[(len(history) + ahead) % WEEK] for ahead in range(horizon)]


def _trend(history: Sequence[float], horizon: int) -> list[float]:
    """Returns the same with a straight line through the last eight weeks, which continues with a step that becomes smaller each
    week."""
    weeks = min(_TREND_WEEKS, len(history) // WEEK)
    last = history[len(history) - weeks * WEEK :]
    sums = [fmean(last[at * WEEK : (at + 1) * WEEK]) for at in range(weeks)]
    middle, mean = (weeks - 1) / 2, fmean(sums)
    slope = sum((at - middle) * (value - mean) for at, value in enumerate(sums)) / sum(
        (at - middle) ** 2 for at in range(weeks)
    )
    newest, factors = mean + slope * middle, _weekday_factors(history)
    found = []
    for ahead in range(horizon):
        steps = (ahead + 4) / WEEK  # from the middle of the last week
        grown = newest + slope * _DAMPING * (1 - _DAMPING**steps) / (1 - _DAMPING)
        found.append(max(0.0, grown) * factors[(len(history) + ahead) % WEEK])
    return found


_METHODS: dict[str, Method] = {"level": _level, "weekdays": _weekdays, "trend": _trend}


def _weekday_factors(history: Sequence[float]) -> list[float]:
    """Returns by index modulo 7 the mean of a day's share of its week, 1 for an average day. With few weeks the factors are
    drawn to 1, as one odd day would make them large."""
    weeks = min(_TREND_WEEKS, len(history) // WEEK)
    first = len(history) - weeks * WEEK
    shares: list[list[float]] = [[] for _ in range(WEEK)]
    for week in range(weeks):
        at = first + week * WEEK
        mean = fmean(history[at : at + WEEK])
        if mean > 0:
            for index in range(at, at + WEEK):
                shares[index % WEEK].append(history[index] / mean)
    drawn = [(sum(of_day) + 1) / (len(of_day) + 1) for of_day in shares]
    return [factor / fmean(drawn) for factor in drawn]


def _backtest(history: Sequence[float], method: Method) -> list[list[tuple[float, float]]]:
    """Returns for each origin (expected, actual) of the days after it. Origins are a week apart, have at least FEWEST_DAYS before
    them, and a week after them."""
    origins = range(len(history) - WEEK, FEWEST_DAYS - 1, -WEEK)
    found = []
    for origin in origins:
        actual = history[origin : origin + BACKTEST_DAYS]
        found.append(list(zip(method(history[:origin], len(actual)), actual, strict=True)))
    return found


def _error(errors: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Returns the sum of the absolute errors divided by the sum of the actual values; 0 if both are 0."""
    missed = sum(abs(expected - actual) for of_origin in errors for expected, actual in of_origin)
    total = sum(actual for of_origin in errors for _, actual in of_origin)
    return missed / total if total else (math.inf if missed else 0.0)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _band(expected: float, level: float, ahead: int, errors: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of the band around the expected value of a day of a forecast with this mean `level`. `errors`: from
    `_relative`. Beyond the days that the backtest saw the band becomes wider with the square root of the time, as that of a
    random walk."""
    scale = (expected + level) / 2 * max(1.0, math.sqrt((ahead + 1) / BACKTEST_DAYS))
    percentiles = quantiles(errors, n=100, method="inclusive")
    low, high = (percentiles[which - 1] * scale for which in BAND)
    return max(0.0, expected + min(0.0, low)), expected + max(0.0, high)


def _relative(days: Sequence[tuple[float, float]]) -> list[float]:
    """Returns the errors of an origin's days as parts of half the day's value and half the level: errors of a large day are
    larger, and those of a day near 0 are not without bound."""
    level = fmean(was for was, _ in days)
    return [(actual - was) / ((was + level) / 2 or 1.0) for was, actual in days]


def _within(errors: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Returns the share of days inside the band that the errors of all other origins give; None with a single origin."""
    if len(errors) < 2:
        return None
    inside = total = 0
    for left_out, days in enumerate(errors):
        others = [one for at, of_origin in enumerate(errors) if at != left_out for one in _relative(of_origin)]
        level = fmean(expected for expected, _ in days)
        for ahead, (expected, actual) in enumerate(days):
            low, high = _band(expected, level, ahead, others)
            inside += low <= actual <= high
            total += 1
    return inside / total


def _first_full(values: Sequence[float], limit: float) -> int | None:
    """Returns the index of the first day of the first seven days whose mean is at the limit or above."""
    total = sum(values[:WEEK])
    if limit <= 0 or len(values) < WEEK:
        return None
    if total >= limit * WEEK:
        return 0
    for at, (gone, new) in enumerate(zip(values, values[WEEK:], strict=False), start=1):
        total += new - gone
        if total >= limit * WEEK:
            return at
    return None
