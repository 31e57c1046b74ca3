"""Models of what-ifs: a queue replayed through slurmctld, on the present cluster and on a changed one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel

_Time = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z:.+-]{0,31}$")]


class WhatIfIn(RequestModel):
    """Requests a what-if. `nodes`: "+4", "-2", "12" or "GROUP=+4"; `caps`: "TEAM=16", the most GPUs that a team has at once, or
    "TEAM=none"; `policy`: fields of the cluster file that replace its own, null removes one. Without a change only the present
    cluster is replayed. `since`, `until`: when the jobs ran, in sacct's words for times."""

    nodes: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=64, examples=[["+4"]])
    caps: list[Annotated[str, Field(max_length=128)]] = Field([], max_length=200, examples=[["vision=16"]])
    policy: dict[str, Any] = Field({}, max_length=20)
    since: _Time = "now-1days"
    until: _Time = "now"


class WaitsOut(ResponseModel):
    """Waits of the jobs of one team and size in seconds; null without a start. `jobs`: how many started. The last row is that of
    all jobs."""

    team: str
    size: str
    jobs: int
    median_s: float | None = None
    p90_s: float | None = None


class ReplayFiguresOut(ResponseModel):
    """Figures of one replay, or of what really was. Shares are of all GPUs (of CPUs without GPUs), from the first to the last
    submission. `fragmentation`: GPUs that are free on nodes with jobs while jobs wait; null where the nodes are not known.
    `last_end_s`: from the first submission to the end of the last job. `usd`: price of all nodes from the first to the last
    submission; `usd_per_gpu_hour`: of an hour that a GPU was in use."""

    waits: list[WaitsOut]
    utilisation: float
    fragmentation: float | None = None
    last_end_s: float
    usd: float
    usd_per_gpu_hour: float | None = None


class WhatIfOut(ResponseModel):
    """The result of a what-if. `figures`, `starts`, `never_started` and `refused` are by replay: real (as it was), present (the
    same cluster), changed. `starts`: Unix seconds by job, empty for more than 2,000 jobs; `never_started` and `refused`: Slurm's
    reason, and the jobs."""

    cluster: str = ""
    operation: str = ""
    at: float = 0.0
    seconds: float = 0.0
    changes: list[str] = []
    first: float = 0.0
    hours: float
    jobs: int
    left_out: dict[str, int] = {}
    warnings: list[str] = []
    figures: dict[str, ReplayFiguresOut]
    starts: dict[str, dict[str, float]] = {}
    never_started: dict[str, dict[str, list[str]]] = {}
    refused: dict[str, dict[str, list[str]]] = {}
