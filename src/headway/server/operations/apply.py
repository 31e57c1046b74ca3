"""The handlers of apply and scale operations."""

from __future__ import annotations

from headway.billing.prices.price_history import current_prices
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_kinds import ApplyParams
from headway.errors import HeadwayError, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.server.operations.operation_run import OperationRun
from headway.server.operations.rollouts import queue_node_rollout
from headway.server.operations.scale_in_wait import ScaleInWait, was_replaced
from headway.server.operations.slurm_upgrade_backup import back_up_before_slurm_upgrade
from headway.services.app_state import AppState
from headway.services.cluster.apply_guards import (
    cost_limit_conflict,
    require_undisturbed_work,
    unended_rental_faults,
)
from headway.services.cluster.cluster_to_schema import summary_of
from headway.services.cluster.planning import scaled_document
from headway.services.storage.declared_environments import queue_declared_builds
from headway.store import ClusterRow, Operation


async def apply_cluster(run: OperationRun) -> tuple[str, ...]:
    """Applies a cluster's file. Returns the id of the operation that follows: the one that continues it if it gave
    way to another operation, or the rollout of the nodes after an upgrade of Slurm; else ()."""
    state, operation, report = run.state, run.operation, run.report
    name, params = operation.cluster, ApplyParams.from_json(operation.params)
    if await was_replaced(state, operation):
        await report(operation.kind, "nothing to do: a newer request replaced it", done=True)
        return ()
    row = await state.store.clusters.get(name)
    document = _document(operation, params, row)
    cluster = (await state.clusters.resolve(document)).cluster
    if params.look_again and operation.attempts == 1 and operation.id not in run.replanned:
        changes = await state.backend.lifecycle.plan(cluster)
        require_undisturbed_work(name, changes)
        run.replanned.add(operation.id)
    # Machines for jobs may have been added since it was queued.
    before = await state.clusters.resolved(row) if row else None
    if faults := await unended_rental_faults(state, before, cluster):
        raise InvalidSpec(faults)
    if over := await cost_limit_conflict(state, before, cluster):
        raise over
    if row is not None and before is not None:
        await back_up_before_slurm_upgrade(state, row, before, cluster, report)
    await state.store.clusters.save(
        name,
        document.model_dump(),
        summary=summary_of(cluster),
        state="creating" if row is None or row.state == "creating" else "changing",
        owner=document.owner,
    )
    await state.store.prices.record(
        name, current_prices(cluster, await state.store.prices.of_cluster(name), state.clock())
    )
    state.live.notify_row_changed(name)
    deadline = _deadline(state, operation, params)
    waiting = ScaleInWait(state, operation, cluster, report, deadline)
    try:
        aside = await state.backend.lifecycle.apply(cluster, report, deadline, waiting)
    except HeadwayError:
        # The error may concern one machine only: nodes that were drained for an upgrade still have to follow their
        # heads.
        await queue_node_rollout(state, operation, cluster, deadline)
        raise
    if aside:
        return await waiting.go_on_later()
    await queue_declared_builds(state, cluster, operation.person, report)
    return await queue_node_rollout(state, operation, cluster, deadline)


def _deadline(state: AppState, operation: Operation, params: ApplyParams) -> Deadline | None:
    """Returns until when jobs may run; None = no deadline. An operation that continues another has that one's
    deadline, for the same nodes."""
    if params.until is not None:
        return Deadline(params.until, frozenset(params.nodes or ()))
    if params.deadline_s is None:
        return None
    return Deadline((operation.started_at or state.clock()) + params.deadline_s)


def _document(operation: Operation, params: ApplyParams, row: ClusterRow | None) -> Document:
    """Returns the document to apply. A scale changes node counts in the document that was applied last."""
    if params.scale is None:
        return Document.model_validate(operation.document)
    if row is None:
        raise Refused(f"{operation.cluster} is down", hint="run headway apply")
    return scaled_document(Document.model_validate(row.document), params.scale)
