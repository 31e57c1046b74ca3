"""The list of jobs: filters and order of a request, and a page of the answer."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.jobs import JobOut
from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS


class JobsQuery(RequestModel):
    """Filters and order of a list of jobs. Several values of one filter are alternatives; a job must match all filters."""

    limit: int = Field(DEFAULT_ROWS, ge=1, le=MAX_ROWS, description="number of jobs per page")
    cursor: str = Field("", max_length=2000, description="`next` of the previous page")
    all: bool = Field(False, description="include recently ended jobs")
    state: list[str] = Field([], max_length=50, description="a Slurm job state, or its first letters")
    user: list[str] = Field([], max_length=50)
    team: list[str] = Field([], max_length=50)
    partition: list[str] = Field([], max_length=50)
    node: str = Field("", max_length=255)
    q: str = Field(
        "", max_length=200, description="text to find in number, name, user, team, partition, reason and nodes"
    )
    sort: str = Field(
        "", max_length=40, description="a column of squeue's --Format, `-` in front for descending order "
        "(default: running jobs, then pending jobs by priority)",
    )  # fmt: skip


class JobsPage(ResponseModel):
    """A page of jobs."""

    jobs: list[JobOut]
    total: int  # jobs that match the filters
    before: int = 0  # how many of them are on earlier pages
    counts: dict[str, int] = {}  # by running, waiting and ended
    next: str = ""  # cursor of the next page; "" on the last page
    as_of: float | None = None  # when Slurm was read
    stale: str = ""  # why the data is old; "" if it is current
