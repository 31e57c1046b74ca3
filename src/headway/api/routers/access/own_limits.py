"""A person's own limits on a cluster."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.schemas.access.own_limits import LimitsOut
from headway.schemas.base import API_PREFIX
from headway.services.access.own_limits import read_own_limits

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["teams"])


@router.get("/limits")
async def get_own_limits(name: str, state: State, who: Anyone) -> LimitsOut:
    """Returns the limits of the person's own Linux user, and what it uses of them."""
    return await read_own_limits(state, who, name)
