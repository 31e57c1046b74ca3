"""Requests and answers about notebooks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.domain import notebook_defaults
from headway.schemas.base import RequestModel, ResponseModel


class NotebookIn(RequestModel):
    """A notebook to start. It is ended after `idle_minutes` without a running cell or keyboard input."""

    gpus: int = Field(notebook_defaults.GPUS, ge=0, le=64)
    time: str = Field(notebook_defaults.TIME_LIMIT, pattern=r"^((\d+-)?\d+(:\d+){0,2})$")
    partition: str = Field("", max_length=64)
    team: str = Field("", max_length=64)
    idle_minutes: int = Field(notebook_defaults.IDLE_MINUTES, ge=1, le=24 * 60)


NotebookState = Literal["waiting", "starting", "running", "ended"]


class NotebookOut(ResponseModel):
    """A notebook and its job."""

    id: str
    cluster: str
    job_id: int
    person: str
    user: str
    state: NotebookState
    why: str = ""  # why it waits or how it ended
    gpus: int = 0
    simulated_gpus: bool = False
    node: str = ""
    partition: str = ""
    idle_minutes: int = 0
    created_at: float = 0.0
    started_at: int | None = None
    time_left_s: int | None = None
    log: str = ""  # log file on the cluster, which shows why it did not start
    mine: bool = False  # only the notebook's own person can open it


class NotebookLinkOut(ResponseModel):
    """`url` opens the notebook in a browser. It works once, within a minute."""

    url: str
    expires_at: float
