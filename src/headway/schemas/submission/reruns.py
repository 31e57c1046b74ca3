"""The request that submits a job again."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel


class RetryIn(RequestModel):
    """`env` supplies secrets again, because they were not stored. `task` limits the retry to one task of an array."""

    env: dict[str, str] = {}
    task: str = Field("", pattern=r"^\d{0,9}$")


class ResumeIn(RetryIn):
    """`step`: of the kept checkpoint from which the new job continues."""

    step: int = Field(ge=0, le=10**15)
