"""Rotation of a cluster's keys."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Admin, State
from headway.schemas.base import API_PREFIX
from headway.schemas.key_rotation import RotateIn
from headway.schemas.operations import OperationOut
from headway.services.cluster.key_rotation import start_key_rotation

router = APIRouter(prefix=API_PREFIX, tags=["backups"])


@router.post("/clusters/{name}/keys/rotate", status_code=202, name="rotate")
async def rotate_key(name: str, body: RotateIn, state: State, who: Admin) -> OperationOut:
    """Queues the replacement of a key by a new one. No job is lost."""
    return await start_key_rotation(state, who, name, body)
