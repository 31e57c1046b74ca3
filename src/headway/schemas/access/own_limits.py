"""Models of a person's own limits."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class LimitOut(ResponseModel):
    """A limit of one user. `where` is what it applies to, such as "team vision", "partition debug" or "/home". `unit` is
    "jobs", "GPUs", "CPUs", "GPU-hours" or "bytes"; `used` is null if it is not known."""

    where: str
    what: str  # "running jobs", "queued jobs", "GPUs", "CPUs", "recent GPU-hours", "size of files"
    unit: str
    used: float | None
    limit: float


class LimitsOut(ResponseModel):
    """The limits of the person's Linux user on a cluster. `stale` says why the use is not known; "" if it is."""

    cluster: str
    user: str
    limits: list[LimitOut]
    stale: str = ""
