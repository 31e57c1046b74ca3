"""The activity of a cluster: its past operations, incidents, and actions of people on its nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import Cursor
from headway.schemas.activity import ActivityPage
from headway.schemas.base import API_PREFIX
from headway.schemas.page_size import DEFAULT_ROWS, MAX_ROWS
from headway.services.cluster.activity import Kind, get_activity

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["events"])


@router.get("/activity")
async def list_activity(
    name: str,
    state: State,
    _: Anyone,
    kind: Kind = "",
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS,
    cursor: Cursor = "",
) -> ActivityPage:
    """Returns the events of a cluster, the latest first. The events stream reports new ones."""
    return await get_activity(state, name, kind=kind, limit=limit, cursor=cursor)
