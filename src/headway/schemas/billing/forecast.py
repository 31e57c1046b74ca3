"""Forecast of the use of a cluster's GPUs and of the waits of its jobs."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class UsedDayOut(ResponseModel):
    """GPU-hours that were allocated to jobs on the UTC day that begins at `day` (unix seconds)."""

    day: int
    gpu_hours: float


class ForecastDayOut(ResponseModel):
    """Expected GPU-hours of the UTC day that begins at `day`; four of five days lie between `low` and `high`. These are null
    without a backtest."""

    day: int
    gpu_hours: float
    low: float | None
    high: float | None


class FillOut(ResponseModel):
    """The day from which on 95 % of the GPUs are allocated in the mean of seven days: as expected, at the upper end of the band
    (`earliest`), and at its lower end (`latest`). Null: not within the forecast."""

    expected: int | None
    earliest: int | None
    latest: int | None


class PartForecastOut(ResponseModel):
    """GPU-hours of one team, or of the jobs of one size, in the last four weeks and in the next four. `error`: mean error of such
    a forecast of four weeks in the past, as a share."""

    name: str
    gpu_hours: float
    next_gpu_hours: float | None
    error: float | None


class WaitForecastOut(ResponseModel):
    """Waits of one team, or of the jobs of one size, in seconds: median and 90th percentile of the last four weeks, and what to
    expect in the next four."""

    name: str
    runs: int
    p50_s: int | None
    p90_s: int | None
    next_p50_s: int | None
    next_p90_s: int | None


class ForecastOut(ResponseModel):
    """Forecast of a cluster. `gpus`: in machines that exist now. `used`: whole days of the past. `no_forecast`: why `forecast`
    is empty, "" if it is not. `method`: level, weekdays or trend. `error`: mean error of a day in the backtest of `tested_days`
    days, as a share; `total_error`: that of four weeks; `within`: share of these days inside the band. `full_days`: how many of
    the last 28 days had 95 % of the GPUs allocated; then the use was limited by the GPUs, and more would have been used."""

    cluster: str
    gpus: int
    used: list[UsedDayOut]
    forecast: list[ForecastDayOut]
    no_forecast: str
    method: str
    error: float | None
    total_error: float | None
    within: float | None
    tested_days: int
    compared_days: int
    full_days: int
    fills: FillOut | None
    teams: list[PartForecastOut]
    sizes: list[PartForecastOut]
    team_waits: list[WaitForecastOut]
    size_waits: list[WaitForecastOut]
