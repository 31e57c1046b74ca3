"""The graph of lineage of a job, dataset, model or service."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Member, State
from headway.schemas.base import API_PREFIX
from headway.schemas.lineage.lineage_graph import LineageGraphOut
from headway.services.lineage.lineage_graph import lineage_graph

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/lineage", tags=["jobs"])
Thing = Annotated[str, Query(max_length=200, description="12, books@3, iris@1 or chat; KIND:NAME, TEAM/NAME.")]


@router.get("")
async def get_lineage_graph(name: str, state: State, who: Member, of: Thing = "") -> LineageGraphOut:
    """Returns what a job, dataset, model or service was made of, and what was made of it: data and code -> job -> model ->
    service. Code and software are shown of jobs that the person may act on."""
    return await lineage_graph(state, who, name, of)
