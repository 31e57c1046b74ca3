"""Models of the table of trainings: jobs that reported metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.billing.usd import Usd

MAX_CONDITIONS = 20
MAX_NOTE = 2000
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}$")]


class TrainingValuesOut(ResponseModel):
    """A metric of a training: its newest value and its range; null where a value is not finite. `lowest` and `highest` cover all
    reports, also of steps that were repeated after a restart."""

    step: int
    last: float | None = None
    lowest: float | None = None
    highest: float | None = None


class TrainingCostOut(ResponseModel):
    """What a training used so far, from Slurm's accounting."""

    runs: int
    gpu_hours: float
    usd: Usd
    energy_kwh: float
    energy_estimated: bool = False


class TrainingOriginOut(ResponseModel):
    """What a training was made of. "" and []: not known."""

    commit: str = ""
    dirty: bool = False  # there were uncommitted changes
    container: str = ""
    datasets: list[str] = []  # NAME@VERSION
    environments: list[str] = []  # NAME@VERSION


class TrainingOut(ResponseModel):
    """A job that reported metrics. `cost` is null for people who may not see its team's usage, and before Slurm's accounting
    knows the job; `origin` is null for people who may not look into the job, and for jobs not submitted through Headway."""

    job: int
    label: str  # the job's number, or that of its array with the task
    name: str
    user: str
    team: str
    state: str
    submitted_at: float  # unix seconds
    reported_at: float  # unix seconds of the newest report
    stopped_by: str = ""  # why its sweep stopped it early: its CANCELLED was planned
    restarts: int = 0
    incidents: int = 0  # that requeued it
    note: str = ""
    tags: list[str] = []
    metrics: dict[str, TrainingValuesOut] = {}
    cost: TrainingCostOut | None = None
    origin: TrainingOriginOut | None = None


class TrainingsOut(ResponseModel):
    """A page of trainings. `names`: metrics of this page's trainings. `next`: the cursor of the next page."""

    cluster: str
    total: int
    trainings: list[TrainingOut] = []
    names: list[str] = []
    next: str = ""


class TrainingGroupOut(ResponseModel):
    """Trainings with the same user, team, name, state, tag or commit. `job`: number of the training with the lowest value of the
    requested metric, or the highest; 0 without a metric."""

    value: str
    trainings: int
    gpu_hours: float | None = None
    usd: Usd | None = None
    lowest: float | None = None
    mean: float | None = None  # of the newest values
    highest: float | None = None
    lowest_job: int = 0
    highest_job: int = 0


class TrainingGroupsOut(ResponseModel):
    """Groups of trainings, the largest first."""

    cluster: str
    by: str
    metric: str = ""
    groups: list[TrainingGroupOut] = []


class TrainingNoteIn(RequestModel):
    """A change of a training's note and tags. `note`: null keeps it."""

    note: str | None = Field(None, max_length=MAX_NOTE)
    add_tags: list[Tag] = Field([], max_length=50)
    remove_tags: list[Tag] = Field([], max_length=50)


class DifferenceOut(ResponseModel):
    """One thing that differs between two jobs. `lines`: of a text, the lines that differ, as in a unified diff."""

    what: str
    first: str = ""
    second: str = ""
    lines: list[str] = []


class TrainingComparisonOut(ResponseModel):
    """What differs between two jobs: their configuration, code, environment and data. `same` names what does not. `metrics` has
    the values of both, null for a metric that one did not report."""

    first: int
    second: int
    differences: list[DifferenceOut] = []
    same: list[str] = []
    metrics: dict[str, tuple[TrainingValuesOut | None, TrainingValuesOut | None]] = {}
