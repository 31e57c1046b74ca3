"""A cluster's volumes."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.schemas.base import API_PREFIX
from headway.schemas.storage.volumes import StorageOut, VolumeSpeedIn, VolumeSpeedOut
from headway.services.storage.volumes import get_storage, measure_speed

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/storage", tags=["storage"])


@router.get("")
async def list_volumes(name: str, state: State, who: Anyone) -> StorageOut:
    """Returns each volume: the nodes on which it is not available, how full it is, and how fast it was when last
    measured; and the viewer's quotas on it."""
    return await get_storage(state, who, name)


@router.post("/bench")
async def storage_bench(name: str, body: VolumeSpeedIn, state: State, who: Operator) -> list[VolumeSpeedOut]:
    """Measures the speed of each volume now, from one machine. The test files are removed, and the results are stored
    as the latest measurement."""
    return await measure_speed(state, who, name, body)
