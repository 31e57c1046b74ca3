"""The cost estimate of a job before it is submitted."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Member, State
from headway.errors import Fault, InvalidSpec
from headway.schemas.billing import EstimateOut
from headway.schemas.submission.submission_check import CheckJobIn
from headway.services.billing.cost_estimate import estimate_cost
from headway.services.jobs import submission

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.post("/estimate")
async def estimate(name: str, body: CheckJobIn, state: State, who: Member) -> EstimateOut:
    """Returns the most a job can cost, when Slurm would start it, and what is left of its team's budget. Submits
    nothing. A job with faults is an error that lists all of them."""
    checked = await submission.check(state, who, name, body)
    if checked.faults:
        raise InvalidSpec([Fault(fault.path, fault.message, fault.hint) for fault in checked.faults], "the job")
    _, cluster = await state.clusters.get(name)
    return await estimate_cost(state, who, cluster, body, checked, submission.node_offer(state, cluster))
