"""Nodes that fail too often, where they are for spare work only: held by a reservation that a job has to ask for."""

from __future__ import annotations

from headway.domain.slurm.state import LEMONS
from headway.health.context import HealthContext
from headway.health.policy import repair_ladder
from headway.slurm import reservations

_MAX_INCIDENTS = 2000  # incidents that are looked at, the latest first


async def find_flaky_nodes(context: HealthContext) -> tuple[str, ...]:
    """Those that their score says are; none where the cluster has no such nodes."""
    health, now, store = context.cluster.health, context.clock(), context.env.store
    found = await store.incidents.search(context.cluster.name, limit=_MAX_INCIDENTS) if health.lemon_spare_work else ()
    of = {node: [one for one in found if one.node == node] for node in {one.node for one in found}}
    return tuple(
        n for n in context.cluster.slot_names if n in of and repair_ladder.spare_work_reason(of[n], health, now)
    )


async def update_reservation(context: HealthContext) -> None:
    """Brings the reservation in line with that. It goes away with the last of them, once no job names it any more."""
    await reservations.set_reserved_nodes(
        context.env.connections, await context.head(), await find_flaky_nodes(context), LEMONS
    )
