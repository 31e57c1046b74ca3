"""The size of a training: GPUs, layout, time and price."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import AnyoneAllClusters
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.sizes import SizeIn, SizeOut
from headway.services.billing.sizes import size_model

router = APIRouter(prefix=f"{API_PREFIX}/size", tags=["costs"])


@router.post("", name="size")
async def size(body: SizeIn, _: AnyoneAllClusters) -> SizeOut:
    """Returns how many GPUs a training needs, for how long, at what price, with the fastest layout that fits. Changes
    nothing."""
    return await size_model(body)
