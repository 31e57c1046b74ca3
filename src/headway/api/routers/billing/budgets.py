"""Budgets of teams."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.budgets import BudgetOut
from headway.services.billing.budgets import load_visible_budgets
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.reports.report_scope import load_billed_cluster, visible_teams

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/budgets")
async def list_budgets(name: str, state: State, who: Anyone) -> list[BudgetOut]:
    """Returns the budgets of the teams that the person may see: the used and the remaining part of the current period."""
    billed = await load_billed_cluster(state, name)
    teams = visible_teams(billed, who)
    await refresh_ledger(state, billed)
    return await load_visible_budgets(state, billed, teams)
