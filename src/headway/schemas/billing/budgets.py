"""Budgets of teams."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class BudgetOut(ResponseModel):
    """A team's budget in its current period. `unit` is usd or gpu_hours; `level` is ok, warn or over. `held_back` is
    true if none of the team's jobs may start until the period ends."""

    team: str
    unit: str
    per: str
    limit: float
    used: float
    left: float
    warn_at: float
    level: str
    cap: bool
    held_back: bool
    start: int
    end: int
