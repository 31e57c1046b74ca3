"""Goodput: the productive share of the GPU time that was allocated to jobs, and how the rest was lost."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import MonthText
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.goodput import GoodputOut, JobGoodputOut
from headway.services.billing.ledger.ledger_refresh import load_report_scope, refresh_ledger
from headway.services.billing.reports.goodput import load_goodput, load_job_goodput
from headway.services.billing.reports.report_scope import load_billed_cluster, visible_teams

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/goodput")
async def get_goodput(name: str, state: State, who: Anyone, period: MonthText = "") -> GoodputOut:
    """Returns the goodput of a month by team, and the causes of loss, the most expensive first."""
    return await load_goodput(state, await load_report_scope(state, name, who, period))


@router.get("/goodput/jobs/{job_id}")
async def goodput_of_job(name: str, job_id: PathNumber, state: State, who: Anyone) -> JobGoodputOut:
    """Returns one job's productive, lost, idle and waiting GPU-hours over all its runs."""
    billed = await load_billed_cluster(state, name)
    visible_teams(billed, who)
    await refresh_ledger(state, billed)
    return await load_job_goodput(state, billed, job_id, who)
