"""A rollout of a cluster's nodes: first the GPU driver of owned machines, then the node image, then how their GPUs are
divided."""

from __future__ import annotations

from headway.domain.changeset import ChangeSet
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.health.context import HealthContext
from headway.rollout import driver_rollout, gpu_parts_rollout, image_rollout
from headway.rollout.node_rollout import CreationLock


async def plan_rollout(context: HealthContext, *, back: bool, head: bool, by: bool) -> ChangeSet:
    """Returns what a rollout would do now. Builds no image. Raises Refused if there is nothing that it could do."""
    if back:
        return await image_rollout.plan_rollout(context, back=True, head=head, by=by)
    drivers = await driver_rollout.plan_driver_rollout(context, by=by)
    parts = await gpu_parts_rollout.plan_parts_rollout(context, by=by)
    others = drivers.changes or parts.changes
    if (others or context.cluster.gpu_driver.install) and not await image_rollout.has_images(context):
        plans = [drivers, parts]
    else:
        plans = [drivers, await image_rollout.plan_rollout(context, back=False, head=head, by=by), parts]
    changes = tuple(change for plan in plans for change in plan.changes)
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    why_empty = "" if changes else "; ".join(filter(None, (plan.why_empty for plan in plans)))
    return ChangeSet(context.cluster.name, changes, why_empty, tuple(notes))


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
    if back:
        return await image_rollout.roll_nodes(context, report, alone, waits, back=True, until=until)
    if not await driver_rollout.roll_drivers(context, report, alone, waits, until=until):
        return False
    others = (
        context.cluster.gpu_driver.install
        or (await gpu_parts_rollout.plan_parts_rollout(context, by=until is not None)).changes
    )
    if (not others or await image_rollout.has_images(context)) and not await image_rollout.roll_nodes(
        context, report, alone, waits, back=False, until=until
    ):
        return False
    return await gpu_parts_rollout.roll_gpu_parts(context, report, alone, waits, until=until)


async def halt_rollout(context: HealthContext, report: ReportProgress) -> None:
    """Stops a rollout: returns drained nodes to service that were not changed yet."""
    await image_rollout.halt_rollout(context, report)
    await driver_rollout.halt_driver_rollout(context, report)
    await gpu_parts_rollout.halt_parts_rollout(context, report)
