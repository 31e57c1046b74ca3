"""Nodes of another image, one after the other, while jobs run."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Admin, Planner, State
from headway.errors import Fault
from headway.schemas.clusters import ChangeSetOut, OperationOut, RollIn
from headway.services.authorization import write_audit_line
from headway.services.cluster.planning import announce_operation
from headway.services.mappers import changeset_out, operation_out

router = APIRouter(tags=["clusters"])


@router.post("/clusters/{name}/roll/plan")
async def plan_roll(name: str, ask: RollIn, state: State, _who: Planner) -> ChangeSetOut:
    """Which nodes a roll would make anew, and why."""
    _, cluster = await state.cluster(name)
    changes = await state.work.plan_roll(cluster, back=ask.back, head=ask.head, by=ask.by_s is not None)
    return changeset_out(changes, cluster, "", [Fault("", note, level="warning") for note in changes.notes])


@router.post("/clusters/{name}/roll", status_code=202)
async def roll(name: str, ask: RollIn, state: State, who: Admin) -> OperationOut:
    """Queues a roll: one node first with its tests, then the others as each falls idle or `by_s` is over. It stops by itself when
    a node does not pass its tests. Whatever is asked of the cluster meanwhile goes first; another roll takes its place."""
    _, cluster = await state.cluster(name)
    if not ask.stop:
        await state.work.plan_roll(
            cluster, back=ask.back, head=ask.head, by=ask.by_s is not None
        )  # raises what stops it
    until = None if ask.by_s is None else state.clock() + ask.by_s
    params = {"back": ask.back, "head": ask.head, "stop": ask.stop, "until": until}
    operation = await state.store.operations.enqueue(name, "roll", who.person, params=params, key=who.idempotency_key)
    announce_operation(state, operation)
    await write_audit_line(state, who, "roll", name, operation=operation.id, **ask.model_dump())
    return operation_out(operation)
