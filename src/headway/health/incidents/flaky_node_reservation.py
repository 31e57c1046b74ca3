"""The reservation of flaky nodes: jobs run on these nodes only if they name it."""

from __future__ import annotations

from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES
from headway.health.context import HealthContext
from headway.health.policy import flaky_score
from headway.slurm import node_reservations

_MAX_INCIDENTS = 2000  # number of incidents that are read, the latest first


async def find_flaky_nodes(context: HealthContext) -> tuple[str, ...]:
    """Returns the nodes whose score is that of a flaky node. Returns () unless the cluster has
    `reserve_flaky_nodes`."""
    health, now, store = context.cluster.health, context.clock(), context.cluster_context.store
    found = (
        await store.incidents.search(context.cluster.name, limit=_MAX_INCIDENTS) if health.reserve_flaky_nodes else ()
    )
    of = {
        node: [incident for incident in found if incident.node == node]
        for node in {incident.node for incident in found}
    }
    return tuple(n for n in context.cluster.slot_names if n in of and flaky_score.flaky_reason(of[n], health, now))


async def update_flaky_reservation(context: HealthContext) -> None:
    """Updates the reservation to hold exactly the flaky nodes. Deletes it when no flaky node is left and no job names
    it."""
    await node_reservations.set_reserved_nodes(
        context.cluster_context.connections, await context.head(), await find_flaky_nodes(context), FLAKY_NODES
    )
