"""Advice on how often a job should write checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.goodput import AdviceOut
from headway.services.billing.reports.checkpoint_advice import advise_checkpoints
from headway.services.billing.reports.report_scope import load_billed_cluster

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/goodput/checkpoints")
async def get_checkpoint_advice(
    name: str,
    state: State,
    who: Anyone,
    every_s: Annotated[float, Query(ge=0, le=1e7, description="seconds between checkpoints; 0: as the job does")] = 0,
    write_s: Annotated[float, Query(ge=0, le=1e6, description="seconds that writing one takes; 0: as measured")] = 0,
    nodes: Annotated[int, Query(ge=0, le=100_000, description="number of nodes; 0: as many as the job has")] = 0,
    job: Annotated[int, Query(ge=0, le=MAX_PATH_NUMBER)] = 0,
) -> AdviceOut:
    """Returns how often a job should write a checkpoint, given how often this cluster's nodes have failed. The present
    interval and the writing time are taken from the query, otherwise from measurements of the job. It is an error if
    neither is known."""
    billed = await load_billed_cluster(state, name)
    return await advise_checkpoints(state, who, billed, job, every_s, write_s, nodes)
