"""Figures over time."""

from __future__ import annotations

from headway.schemas.base import Wire


class LineOut(Wire):
    """One line of a chart; `values` beside the answer's `times`, null where nothing was measured."""

    label: str  # "GPU 3", "lab-1-2 GPU 3", "mean"
    node: str = ""
    gpu: int | None = None
    values: list[float | None]


class ChartOut(Wire):
    key: str
    title: str
    unit: str
    lines: list[LineOut]
    left_out: int = 0  # lines beyond what one chart shows


class MetricsOut(Wire):
    """`times`: unix seconds, `step_s` apart. `simulated`: of GPUs that are."""

    cluster: str
    start: float
    end: float
    step_s: int
    simulated: bool
    times: list[float]
    charts: list[ChartOut]
