"""The cost estimate of a job before it is submitted."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Member, State
from headway.errors import Fault, InvalidSpec
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.cost_estimate import EstimateOut
from headway.schemas.submission.submission_check import CheckJobIn
from headway.services.billing import cost_estimate
from headway.services.jobs import submission

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.post("/estimate", name="estimate")
async def estimate_cost(name: str, body: CheckJobIn, state: State, who: Member) -> EstimateOut:
    """Returns the most a job can cost, when Slurm would start it, and what is left of its team's budget. Submits
    nothing. A job with faults is an error that lists all of them."""
    checked = await submission.check_submission(state, who, name, body)
    if checked.faults:
        raise InvalidSpec([Fault(fault.path, fault.message, fault.hint) for fault in checked.faults], "the job")
    _, cluster = await state.clusters.get(name)
    return await cost_estimate.estimate_cost(state, who, cluster, body, checked, submission.node_offer(state, cluster))
