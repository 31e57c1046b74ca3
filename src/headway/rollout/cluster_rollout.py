"""A rollout of a cluster's nodes: first the node image, then how their GPUs are divided."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.changeset import ChangeSet
from headway.domain.progress import OperationWaits, ReportProgress
from headway.health.context import HealthContext
from headway.rollout import gpu_parts_rollout, image_rollout
from headway.rollout.node_rollout import CreationLock


async def plan_rollout(context: HealthContext, *, back: bool, head: bool, by: bool) -> ChangeSet:
    """Returns what a rollout would do now. Builds no image. Raises Refused if there is nothing that it could do."""
    parts = ChangeSet(context.cluster.name, ()) if back else await gpu_parts_rollout.plan_parts_rollout(context, by=by)
    if parts.changes and not await image_rollout.has_images(context):
        return parts
    found = await image_rollout.plan_rollout(context, back=back, head=head, by=by)
    notes = (*found.notes, *parts.notes)
    if not parts.changes:
        return replace(found, notes=notes)
    return ChangeSet(found.cluster, (*found.changes, *parts.changes), notes=notes)


async def roll_nodes(
    context: HealthContext,
    report: ReportProgress,
    alone: CreationLock,
    waits: OperationWaits,
    *,
    back: bool,
    until: float | None,
) -> bool:
    """Rolls all nodes in service; with `back` only to the previous image. Returns False if another operation has to go
    first (`waits`). Raises Refused when a node fails its tests."""
    divides = not back and not (await gpu_parts_rollout.plan_parts_rollout(context, by=until is not None)).empty
    if (not divides or await image_rollout.has_images(context)) and not await image_rollout.roll_nodes(
        context, report, alone, waits, back=back, until=until
    ):
        return False
    return back or await gpu_parts_rollout.roll_gpu_parts(context, report, alone, waits, until=until)


async def halt_rollout(context: HealthContext, report: ReportProgress) -> None:
    """Stops a rollout: returns drained nodes to service that were not changed yet."""
    await image_rollout.halt_rollout(context, report)
    await gpu_parts_rollout.halt_parts_rollout(context, report)
