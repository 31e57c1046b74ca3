"""Models of time series."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class ChartLineOut(ResponseModel):
    """One line of a chart. `values` correspond to `times` of the response; null where nothing was measured."""

    label: str  # "GPU 3", "lab-1-2 GPU 3", "mean"
    node: str = ""
    gpu: int | None = None
    values: list[float | None]


class ChartOut(ResponseModel):
    """A chart: one or more lines with the same unit."""

    key: str
    title: str
    unit: str
    lines: list[ChartLineOut]
    left_out: int = 0  # number of lines beyond the limit of a chart


class MetricsOut(ResponseModel):
    """Time series of a period. `times` are unix seconds, `step_s` apart. `simulated` is true if the GPUs are simulated."""

    cluster: str
    start: float
    end: float
    step_s: int
    simulated: bool
    times: list[float]
    charts: list[ChartOut]
