"""What a job would cost at most, and when it would start."""

from __future__ import annotations

from headway.schemas.base import ResponseModel
from headway.schemas.billing.budgets import BudgetOut
from headway.schemas.billing.usd import Usd


class EstimateOut(ResponseModel):
    """The most a job can cost, when Slurm would start it, and what is left of its team's budget. `gpus` and `nodes` are
    those of one of its `tasks`; hours and prices are those of all tasks of an array together, and `usd_per_hour` is
    the rate while all of them run. If `unread` lists options that Headway cannot interpret and that affect what the
    job would hold, these figures are null."""

    team: str
    gpus: int | float | None
    nodes: int | None
    time_limit_s: int | None
    gpu_hours: float | None
    usd: Usd | None
    usd_per_hour: Usd | None
    start: int = 0
    waits: str = ""  # why no start time is known, if there is a reason
    expected_nodes: str = ""
    tasks: int = 1
    unread: list[str] = []
    budget: BudgetOut | None = None
    warning: str = ""
