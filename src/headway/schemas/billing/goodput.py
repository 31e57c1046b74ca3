"""Goodput of teams and jobs, causes of lost GPU time, and advice on checkpoints."""

from __future__ import annotations

from headway.schemas.base import ResponseModel
from headway.schemas.billing.usd import Usd


class PartsOut(ResponseModel):
    """GPU-hours of a team or a job. `goodput` is productive / allocated time; `ettr` is productive / (allocated +
    waiting) time."""

    team: str
    productive_gpu_hours: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    waited_gpu_hours: float
    goodput: float | None
    ettr: float | None


class CauseOut(ResponseModel):
    """A cause of lost GPU time. `kind` is fault, preemption, requeue, checkpoints, idle, notebook or queue. `jobs`
    lists the jobs that lost most."""

    kind: str
    what: str
    gpu_hours: float
    usd: Usd
    jobs: list[int] = []


class AdviceOut(ResponseModel):
    """The recommended checkpoint interval of a job. At present it writes one every `now_s` seconds, each takes `write_s`
    seconds, and it fails once in `failure_s` seconds on average. `best_s` is the recommended interval, `saves` the
    share of its time that this would save, and `saves_usd` what that share cost in the period."""

    job: int
    now_s: float
    best_s: float
    write_s: float
    failure_s: float
    saves: float
    saves_usd: Usd | None = None


class GoodputOut(ResponseModel):
    """Goodput of a month by team, the causes of loss, and advice on checkpoints."""

    cluster: str
    period: str
    start: int
    end: int
    as_of: int
    simulated: bool = False
    total: PartsOut
    teams: list[PartsOut]
    causes: list[CauseOut]
    failure_hours: float | None = None  # mean time between failures of one node (MTBF)
    failures: int = 0  # incidents from which it was computed
    checkpoints: list[AdviceOut] = []


class JobGoodputOut(ResponseModel):
    """Goodput of one job over all its `runs`, up to `as_of`."""

    cluster: str
    job: int
    user: str
    runs: int
    as_of: int
    simulated: bool = False
    total: PartsOut
