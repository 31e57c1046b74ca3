"""Models of the metrics that trainings report."""

from __future__ import annotations

from headway.schemas.base import ResponseModel

MAX_SERIES = 100  # of one request
MAX_SERIES_POINTS = 5000


class TrainingMetricOut(ResponseModel):
    """A metric of a job and its newest value. `value` is null if it is not finite; `text` always has it."""

    name: str
    points: int
    step: int
    value: float | None
    text: str
    at: float  # unix seconds


class ReportingRunOut(ResponseModel):
    """A run of the training: `began` in unix seconds, and its first step; null before its first report."""

    began: float
    first_step: int | None = None


class TrainingMetricsOut(ResponseModel):
    """The metrics of a job, in the order of their first report. `dropped` counts reports that are not kept, or not completely;
    `note` says why. `unread_bytes`: of the job's file, which are not here yet. `from_log`: the job reported none, and these
    were read from the lines of its log, which have no times."""

    job: int
    metrics: list[TrainingMetricOut] = []
    runs: list[ReportingRunOut] = []
    dropped: int = 0
    note: str = ""
    unread_bytes: int = 0
    from_log: bool = False


class TrainingSeriesOut(ResponseModel):
    """A metric for a chart. A point may stand for several: then `values` has their mean, and `lows` and `highs` their range.
    null: no finite value. `not_finite` has (step, "nan", "inf" or "-inf"). Steps that the training repeated after a restart are
    there once, as they were repeated; CSV has all."""

    name: str
    points: int  # before down-sampling
    steps: list[int] = []
    times: list[float] = []  # unix seconds
    values: list[float | None] = []
    lows: list[float | None] = []
    highs: list[float | None] = []
    not_finite: list[tuple[int, str]] = []


class TrainingChartsOut(ResponseModel):
    """Several metrics of a job."""

    job: int
    series: list[TrainingSeriesOut]
