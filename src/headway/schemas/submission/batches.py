"""Requests and answers about batches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.billing.usd import Usd
from headway.schemas.storage.datasets import DatasetName
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.run_request import JobFields, ScriptLine

MAX_WORKERS = 1000  # tasks of an array, see MaxArraySize


class BatchIn(RequestModel):
    """A batch to run: the rows of `input` are given to `program` or `server`, and the results become a version of the dataset
    `output`. `job`: the resources of each worker."""

    output: DatasetName
    input: Annotated[str, Field(pattern=r"^(/[^\x00]{1,500}|[a-z][a-z0-9_-]{0,30}(@[0-9]{1,9})?)$")]
    model: str = Field(default="", max_length=500)  # text that the program finds in $HEADWAY_BATCH_MODEL
    program: str = Field(default="", max_length=500)  # FILE.py or FILE.py:FUNCTION, in the bundle
    server: str = Field(default="", max_length=4000)  # command of an OpenAI-compatible server
    workers: int = Field(default=1, ge=1, le=MAX_WORKERS)
    shard_rows: int = Field(default=1000, ge=1, le=1_000_000)  # rows that a worker takes at once
    call_rows: int = Field(default=100, ge=1, le=10_000)  # rows of one call, or requests to a server at once
    call_s: int = Field(
        default=3600, ge=1, le=86_400
    )  # within which a call or a request to the server must be answered
    tries: int = Field(default=3, ge=1, le=20)  # of a row
    lease_s: int = Field(default=60, ge=5, le=3600)
    start_s: int = Field(default=1800, ge=5, le=86_400)  # for the program to be loaded, or the server to become healthy
    job: JobFields = JobFields()
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only
    dry_run: bool = False  # returns the batch script; submits nothing

    @model_validator(mode="after")
    def _one_way(self) -> BatchIn:
        if self.program and self.server:
            raise ValueError("give program or server, not both")
        if not (self.program or self.server or self.model):
            raise ValueError("give program, or model for vLLM, or server")
        if self.job.launcher not in (None, "python"):
            raise ValueError("a worker is one process: leave launcher out")
        return self


# The user of a batch can change the program that tells its progress, so all numbers have limits.
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class BatchWorkerOut(ResponseModel):
    """A run of a task of a batch's array."""

    task: Annotated[str, Field(max_length=64)]
    node: Annotated[str, Field(max_length=64)]
    shard: _Count | None = None
    shards: _Count = 0  # that it has committed
    rows: _Count = 0
    errors: _Count = 0
    seconds: _Seconds = 0.0
    error: Annotated[str, Field(max_length=2000)] = ""  # why it ended


class BatchProgress(ResponseModel):
    """The progress that node/batch_worker/status.py tells. `output`: whether the output is complete."""

    rows: _Count | None = None
    shards: _Count | None = None
    done_shards: _Count = 0
    done_rows: _Count = 0
    errors: _Count = 0
    seconds: _Seconds = 0.0
    workers: list[BatchWorkerOut] = Field(default=[], max_length=100)
    some_errors: list[Annotated[str, Field(max_length=5000)]] = Field(default=[], max_length=5)
    output: bool = False

    @model_validator(mode="after")
    def _done_of_all(self) -> BatchProgress:
        if self.done_shards > (self.shards or 0) or self.done_rows > (self.rows or 0):
            raise ValueError("more is done than there is")
        return self


class BatchOut(ResponseModel):
    """A batch and its progress. `rows` and `shards` are null until the input was divided. `id` is "" for a dry run."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    ended_at: float | None = None
    state: str  # submitting, running, adding (the dataset version), done, failed, stopped; planned for a dry run
    why: str = ""
    input: str
    model: str = ""
    program: str = ""
    server: str = ""
    job_id: int = 0
    workers: int
    rows: int | None = None
    done_rows: int = 0
    errors: int = 0  # rows without a result
    shards: int | None = None
    done_shards: int = 0
    seconds: float = 0.0  # of all workers
    usd: Usd | None = None  # of all workers so far; null without a price
    worker_runs: list[BatchWorkerOut] = []  # the latest
    some_errors: list[str] = []  # the first rows without a result, as JSON; only for those who may act on the batch
    folder: str = ""  # its state on the cluster
    dataset: str = ""  # NAME@VERSION
    script: list[ScriptLine] = []
    warning: str = ""
