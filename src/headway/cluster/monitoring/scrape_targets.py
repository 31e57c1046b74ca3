"""Which machines Prometheus asks: those that there are, whatever is still to come or to go."""

from __future__ import annotations

from headway.cluster import remote_steps
from headway.cluster.context import Env
from headway.cluster.desired_state import goal_of, site_of
from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.render.monitoring.prometheus import TARGETS


async def tell_prometheus(cluster: Cluster, env: Env) -> None:
    machines = {machine.name: machine for machine in await env.provider.list(cluster.name)}
    head, place = machines.get(cluster.head), await env.provider.find(cluster)
    if head is None:
        return
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    there = tuple(name for name in cluster.slot_names if name in machines)
    site = await site_of(cluster, env, place, there, give_uids=False)
    goal = await goal_of(cluster, site, await env.store.secrets.of_cluster(cluster.name))
    await remote_steps.perform(
        env.connections, head, [remote_steps.file_step(TARGETS, goal.roles["head"].files[TARGETS])]
    )
