"""An action on several jobs at once, and its result for each of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel

JobAction = Literal["cancel", "requeue", "hold", "release"]
MOST_JOBS = 200  # of one request


class JobsActionIn(RequestModel):
    """The action, and the jobs: "12" is a job or a whole array, "12_3" one task of an array."""

    action: JobAction
    jobs: list[Annotated[str, Field(pattern=r"^[0-9]{1,10}(_[0-9]{1,10})?$")]] = Field(
        min_length=1, max_length=MOST_JOBS
    )


class JobActionOut(ResponseModel):
    """What became of one job: `error` says why the action was not carried out, "" if it was."""

    job: str
    error: str = ""
    hint: str = ""


class JobsActionOut(ResponseModel):
    """The result of each job, in the order of the request. `done`: number of jobs without an error."""

    action: JobAction
    done: int
    results: list[JobActionOut]
