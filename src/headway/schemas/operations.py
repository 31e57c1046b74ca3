"""Models of operations on clusters, and of their progress."""

from __future__ import annotations

from typing import Literal

from headway.domain.operation_kinds import OperationKind
from headway.schemas.base import ErrorOut, ResponseModel

OperationState = Literal["queued", "running", "done", "failed"]


class OperationOut(ResponseModel):
    """An operation on a cluster and its state."""

    id: str
    cluster: str
    kind: OperationKind
    state: OperationState
    person: str
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorOut | None = None
    commit: str = ""  # hash of the Git commit whose file is applied; "" also in lists of operations
    kept: list[
        str
    ] = []  # down: what was kept and where; backup: the file; roll, scale, apply: the operation that continues this one


class EventOut(ResponseModel):
    """One line of an operation's progress. A step begins with `done` false; the line that ends it has the same `step`,
    `done` true and `seconds`."""

    seq: int
    at: float
    step: str  # "machines", "lab-1-2", "accounting", ...
    text: str
    level: Literal["info", "warning", "error"] = "info"
    done: bool = False
    seconds: float | None = None
