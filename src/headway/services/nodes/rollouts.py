"""Rollouts of node images: nodes get another image one after the other, while jobs run."""

from __future__ import annotations

from headway.domain.operation_kinds import RollParams
from headway.errors import Fault
from headway.schemas.clusters import ChangeSetOut
from headway.schemas.nodes.rollouts import RollIn
from headway.schemas.operations import OperationOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.changeset_to_schema import changeset_out
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operations import queue_operation


async def plan_rollout(state: AppState, name: str, request: RollIn) -> ChangeSetOut:
    """Returns which nodes a rollout would replace, and why."""
    _, cluster = await state.clusters.get(name)
    changes = await state.backend.rollouts.plan_rollout(
        cluster, back=request.back, head=request.head, by=request.by_s is not None
    )
    return changeset_out(changes, cluster, "", [Fault("", note, level="warning") for note in changes.notes])


async def start_rollout(state: AppState, who: Principal, name: str, request: RollIn) -> OperationOut:
    """Queues a rollout of the node image, or its stop. Raises the errors that make it impossible."""
    _, cluster = await state.clusters.get(name)
    if not request.stop:
        await state.backend.rollouts.plan_rollout(
            cluster, back=request.back, head=request.head, by=request.by_s is not None
        )  # raises if the rollout is impossible
    until = None if request.by_s is None else state.clock() + request.by_s
    params = RollParams(request.back, request.head, request.stop, until)
    operation = await queue_operation(state, name, who.person, params, key=who.idempotency_key)
    await write_audit_line(state, who, "roll", name, operation=operation.id, **request.model_dump())
    return operation_out(operation)
