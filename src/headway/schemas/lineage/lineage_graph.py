"""What leads to a job, dataset, model or service, and what was made of it."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel

LineageKind = Literal["dataset", "code", "environment", "container", "sweep", "job", "model", "service"]


class LineageNodeOut(ResponseModel):
    """One thing. `key` is unique, such as job:12, dataset:books@3, model:vision/iris@1, service:vision/chat."""

    key: str
    kind: LineageKind
    title: str
    detail: str = ""
    state: str = ""  # of a job
    job_id: int = 0


class LineageGraphOut(ResponseModel):
    """Things in the order in which they were found, and edges (from, to): data, code -> job -> model -> service. `notes`: what
    the graph may lack, and why."""

    cluster: str
    start: str
    nodes: list[LineageNodeOut] = []
    edges: list[tuple[str, str]] = []
    notes: list[str] = []
