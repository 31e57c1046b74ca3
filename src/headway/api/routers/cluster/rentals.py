"""What the server rents from clouds."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Operator, State
from headway.schemas.base import API_PREFIX
from headway.schemas.nodes.rentals import RentedOut
from headway.services.nodes import rentals as service

router = APIRouter(prefix=f"{API_PREFIX}/rented", tags=["nodes"])


@router.get("")
async def list_rented(state: State, _: Operator) -> RentedOut:
    """Returns everything of this server that costs money at clouds, of all clusters: instances, volumes, addresses."""
    return await service.list_rented(state)
