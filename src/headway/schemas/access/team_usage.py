"""Models of the share and usage of teams."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class TeamOut(ResponseModel):
    """A team's share and usage. Fractions are of the whole cluster; usage is that of the last days, with older usage
    counting less. Values are null if Slurm has not reported them or the person may not see them."""

    name: str
    users: list[str]
    leads: list[str] = []
    share: int
    share_fraction: float
    use_fraction: float | None = None
    gpu_hours: float | None = None
    fair_share: float | None = None  # 1: usage far below its share, 0: far above
    gpu_hours_cap: str = ""  # such as "1000 a month"
    gpu_hours_of_cap: float | None = None  # GPU-hours used since the cap was last reset, without decay
    jobs_running: int = 0
    jobs_pending: int = 0
    gpus_used: int = 0


class TeamsOut(ResponseModel):
    """`stale` says why the usage is missing; "" if it is present."""

    cluster: str
    teams: list[TeamOut]
    stale: str = ""
