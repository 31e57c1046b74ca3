"""Updates the machines that Prometheus scrapes: those that exist now."""

from __future__ import annotations

from headway.cluster import remote_steps
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site, render_desired_state
from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.render.monitoring.prometheus import TARGETS


async def update_scrape_targets(cluster: Cluster, context: ClusterContext) -> None:
    """Writes the existing machines to Prometheus's target file on the head. Raises Refused if the cluster has no
    network."""
    machines = await context.machines(cluster.name)
    head, place = machines.get(cluster.head), await context.provider.find(cluster)
    if head is None:
        return
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    there = tuple(name for name in cluster.slot_names if name in machines)
    site = await read_site(cluster, context, place, there, give_uids=False)
    goal = await render_desired_state(cluster, site, await context.store.secrets.of_cluster(cluster.name))
    await remote_steps.run_steps(
        context.connections, head, [remote_steps.file_step(TARGETS, goal.roles["head"].files[TARGETS])]
    )
