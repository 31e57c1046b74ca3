"""Rollouts of node images."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Admin, Planner, State
from headway.schemas.base import API_PREFIX
from headway.schemas.clusters import ChangeSetOut
from headway.schemas.nodes.rollouts import RollIn
from headway.schemas.operations import OperationOut
from headway.services.nodes import rollouts as service

router = APIRouter(prefix=API_PREFIX, tags=["clusters"])


@router.post("/clusters/{name}/roll/plan")
async def plan_roll(name: str, body: RollIn, state: State, _who: Planner) -> ChangeSetOut:
    """Returns which nodes a rollout would replace, and why."""
    return await service.plan_rollout(state, name, body)


@router.post("/clusters/{name}/roll", status_code=202, name="roll")
async def roll_cluster(name: str, body: RollIn, state: State, who: Admin) -> OperationOut:
    """Queues a rollout: one node first with its tests, then the others as they become idle or when `by_s` has passed.
    It stops if a node fails its tests. Operations that are requested meanwhile go first; another rollout replaces
    it."""
    return await service.start_rollout(state, who, name, body)
