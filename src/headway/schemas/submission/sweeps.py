"""Requests and answers about sweeps."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.billing.usd import Usd
from headway.schemas.submission.job_field_types import GitIn

MAX_COST_USD = 1e9
ParameterValue = bool | int | float | str


class SweepIn(RequestModel):
    """A sweep to run. `document` is the loaded sweep file."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only
    dry_run: bool = False  # returns the first trials and what all would cost; submits nothing


class TrialsIn(RequestModel):
    """Trials of a sweep of `method: manual`: the parameters of each."""

    parameters: list[dict[str, ParameterValue]] = Field(min_length=1, max_length=1000)


class SweepBestIn(RequestModel):
    """A longer or larger run with the parameters of a trial. `trial`: null for the best one. Fields that are null are those of
    the sweep."""

    trial: int | None = Field(default=None, ge=1)
    nodes: int | None = Field(default=None, ge=1, le=100_000)
    gpus: int | None = Field(default=None, ge=0, le=1024)
    time: str | None = Field(default=None, max_length=32)
    partition: str | None = Field(default=None, max_length=64)
    dry_run: bool = False  # returns the batch script; submits nothing


class TrialOut(ResponseModel):
    """A trial of a sweep. `step` and `value` are those of its newest report of the sweep's metric."""

    number: int
    parameters: dict[str, ParameterValue]
    state: str = ""  # waiting, submitting, pending, running, done, failed, stopped (early), cancelled
    job_id: int = 0
    step: int | None = None
    value: float | None = None
    rungs: dict[str, float | None] = {}  # step of a rung -> value there
    why: str = ""
    run_s: float = 0.0
    gpu_hours: float = 0.0


class SweepOut(ResponseModel):
    """A sweep and its trials, which lists of sweeps leave out. `id` is "" for a dry run."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    ended_at: float | None = None
    state: str  # running, done, failed, stopped; planned for a dry run
    why: str = ""
    method: str
    metric: str
    goal: str  # minimize or maximize
    parameters: list[str]  # names, in the order of the file
    trial_count: int
    parallel: int
    trials: list[TrialOut] = []
    ended_trials: int = 0
    best: int | None = None  # number of the best trial
    best_value: float | None = None
    command: list[str] = []  # of the first trial
    gpus: float = 0.0  # of a trial
    gpu_hours: float = 0.0  # of all trials so far
    usd: Usd | None = None  # of all trials so far; null without a price
    most_gpu_hours: float | None = None  # if each trial runs to its time limit; null without one
    most_usd: Usd | None = None
    max_cost: float | None = None  # USD
    warning: str = ""
