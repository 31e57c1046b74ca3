"""Models of time series."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel


class ChartLineOut(ResponseModel):
    """One line of a chart. `values` correspond to `times` of the response; null where nothing was measured."""

    label: str  # "GPU 3", "lab-1-2 GPU 3", "mean", "received"
    node: str = ""
    gpu: int | None = None
    values: list[float | None]


class ChartLimitOut(ResponseModel):
    """A value that the lines of a chart should not reach, such as the memory that a job has requested."""

    label: str
    value: float


class ChartMarkOut(ResponseModel):
    """An event to mark in all charts. `href`: the address of its page on the dashboard, "" without one."""

    at: float  # unix seconds
    kind: Literal["incident", "drain", "restart", "checkpoint"]
    text: str
    href: str = ""


class ChartOut(ResponseModel):
    """A chart: one or more lines with the same unit."""

    key: str
    title: str
    unit: str
    lines: list[ChartLineOut]
    left_out: int = 0  # number of lines beyond the limit of a chart
    limits: list[ChartLimitOut] = []


class MetricsOut(ResponseModel):
    """Time series of a period. `times` are unix seconds, `step_s` apart. `simulated` is true if the GPUs are simulated.
    `marks`: the period's incidents, drains by people, restarts and checkpoints, the oldest first; at most the latest 60."""

    cluster: str
    start: float
    end: float
    step_s: int
    simulated: bool
    times: list[float]
    charts: list[ChartOut]
    marks: list[ChartMarkOut] = []
