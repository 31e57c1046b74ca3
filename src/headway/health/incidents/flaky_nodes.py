"""Nodes that fail too often run only spare work: a reservation holds them, and a job has to name it to use them."""

from __future__ import annotations

from headway.domain.slurm.state import LEMONS
from headway.health.context import HealthContext
from headway.health.policy import repair_ladder
from headway.slurm import reservations

_MAX_INCIDENTS = 2000  # number of incidents that are read, the latest first


async def find_flaky_nodes(context: HealthContext) -> tuple[str, ...]:
    """Returns the nodes whose score limits them to spare work. Returns () unless the cluster has `lemon_spare_work`."""
    health, now, store = context.cluster.health, context.clock(), context.cluster_context.store
    found = await store.incidents.search(context.cluster.name, limit=_MAX_INCIDENTS) if health.lemon_spare_work else ()
    of = {node: [one for one in found if one.node == node] for node in {one.node for one in found}}
    return tuple(
        n for n in context.cluster.slot_names if n in of and repair_ladder.spare_work_reason(of[n], health, now)
    )


async def update_reservation(context: HealthContext) -> None:
    """Updates the reservation to hold exactly the flaky nodes. Deletes it when no flaky node is left and no job names
    it."""
    await reservations.set_reserved_nodes(
        context.cluster_context.connections, await context.head(), await find_flaky_nodes(context), LEMONS
    )
