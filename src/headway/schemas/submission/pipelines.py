"""Requests and answers about pipelines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import GitIn

STEP_DONE = frozenset({"COMPLETED", "CACHED", "SKIPPED"})


class PipelineIn(RequestModel):
    """A pipeline to run. `document` is the loaded pipeline file."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only


class PipelineScheduleOut(ResponseModel):
    """A pipeline that starts by itself: at the times of `schedule` (cron, UTC), and when `dataset` has a new version. `last`: id
    of the pipeline that it has started last; `why`: why it did not start the last time."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    schedule: str = ""
    next_at: float | None = None
    dataset: str = ""
    last: str = ""
    why: str = ""


class PipelineRetryIn(RequestModel):
    """`steps` are the steps to restart from; if empty, the failed ones."""

    steps: list[str] = []
    env: dict[str, str] = {}


class StepOutputOut(ResponseModel):
    """An output of a step. `value` is the text that later steps read: a path, or a number."""

    kind: Literal["file", "metric", "dataset"]
    value: str = Field(max_length=4096)
    path: str = Field(default="", max_length=1000)  # of a file, in the pipeline's folder
    bytes: int = 0
    sha256: str = Field(default="", max_length=64)  # of files, if the step or one that needs it is cached
    version: str = Field(default="", max_length=64)  # of a dataset: NAME@VERSION

    @property
    def shown(self) -> str:
        """The value as tables show it: 0.93, NAME@VERSION, or the path in the pipeline's folder."""
        if self.kind != "metric":
            return self.version or self.path or self.value
        try:
            return f"{float(self.value):.6g}"
        except ValueError:
            return self.value


class StepOut(ResponseModel):
    """A step of a pipeline and its latest job."""

    name: str
    needs: list[str] = []
    when: str = ""  # the step is skipped if this is false
    job_id: int = 0
    state: str = ""  # of the job; or CACHED, SKIPPED
    why: str = ""
    runs: int = 1  # how often it was submitted
    source: int = 0  # of a cached step: the job that made the outputs
    outputs: dict[str, StepOutputOut] = {}


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

    @property
    def done_steps(self) -> int:
        """The number of steps that succeeded, or did not have to run."""
        return sum(step.state in STEP_DONE for step in self.steps)
