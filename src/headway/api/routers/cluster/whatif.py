"""What-ifs: the queue replayed through slurmctld with a changed cluster."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Operator, State
from headway.schemas.base import API_PREFIX
from headway.schemas.operations import OperationOut
from headway.schemas.whatif import WhatIfIn, WhatIfOut
from headway.services.cluster import whatif as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/whatif", tags=["costs"])


@router.post("", status_code=202)
async def start_whatif(name: str, request: WhatIfIn, state: State, who: Operator) -> OperationOut:
    """Queues a what-if: the jobs of accounting run through the real slurmctld in containers of the server's machine, in virtual
    time, once with the present cluster file and once with the changes. Nothing of the cluster changes."""
    return await service.start_whatif(state, who, name, request)


@router.get("")
async def list_whatifs(name: str, state: State, _: Operator) -> list[WhatIfOut]:
    """Returns the latest results, the newest first, without `starts`. They show the waits of all teams."""
    return await service.list_whatifs(state, name)


@router.get("/{operation}")
async def get_whatif(name: str, operation: str, state: State, _: Operator) -> WhatIfOut:
    """Returns the result of one operation."""
    return await service.get_whatif(state, name, operation)
