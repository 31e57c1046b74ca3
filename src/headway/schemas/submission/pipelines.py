"""Requests and answers about pipelines."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import GitIn


class PipelineIn(RequestModel):
    """A pipeline to run. `document` is the loaded pipeline file."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only


class PipelineRetryIn(RequestModel):
    """`steps` are the steps to restart from; if empty, the failed ones."""

    steps: list[str] = []
    env: dict[str, str] = {}


class StepOut(ResponseModel):
    """A step of a pipeline and its latest job."""

    name: str
    needs: list[str] = []
    job_id: int = 0
    state: str = ""
    why: str = ""
    runs: int = 1  # how often it was submitted


class PipelineOut(ResponseModel):
    """A pipeline and its steps."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    workdir: str
    state: str  # running, done or failed
    steps: list[StepOut]
    warning: str = ""  # of a start: why the PyTorch of a step can't use the GPUs that it asks for
