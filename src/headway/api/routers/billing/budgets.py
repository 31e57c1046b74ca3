"""Budgets of teams, and the cost estimate of a job before it is submitted."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Member, State
from headway.errors import Fault, InvalidSpec
from headway.schemas.billing import BudgetOut, EstimateOut
from headway.schemas.submissions import CheckJobIn
from headway.services.billing.budgets import load_visible_budgets
from headway.services.billing.cost_estimate import estimate_cost
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.report_scope import load_billed_cluster, visible_teams
from headway.services.jobs import submission

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.get("/budgets")
async def budgets(name: str, state: State, who: Anyone) -> list[BudgetOut]:
    """Returns the budgets of the teams that the person may see: what is used in the current period, and what is left."""
    billed = await load_billed_cluster(state, name)
    teams = visible_teams(billed, who)
    await refresh_ledger(state, billed)
    return await load_visible_budgets(state, billed, teams)


@router.post("/estimate")
async def estimate(name: str, ask: CheckJobIn, state: State, who: Member) -> EstimateOut:
    """Returns the most a job can cost, when Slurm would start it, and what is left of its team's budget. Submits
    nothing. A job with faults is an error that lists all of them."""
    checked = await submission.check(state, who, name, ask)
    if checked.faults:
        raise InvalidSpec([Fault(one.path, one.message, one.hint) for one in checked.faults], "the job")
    _, cluster = await state.clusters.get(name)
    return await estimate_cost(state, who, cluster, ask, checked, submission.node_offer(state, cluster))
