"""Which machines Prometheus asks: those that there are, whatever is still to come or to go."""

from __future__ import annotations

from headway.cluster import ops
from headway.cluster.env import Env
from headway.cluster.goal import goal_with
from headway.domain.cluster import Cluster
from headway.render.monitoring import TARGETS


async def tell_prometheus(cluster: Cluster, env: Env) -> None:
    machines = {machine.name: machine for machine in await env.provider.list(cluster.name)}
    head = machines.get(cluster.head)
    if head is None:
        return
    there = tuple(name for name in cluster.slot_names if name in machines)
    goal = await goal_with(cluster, env, there)
    await ops.perform(env.connections, head, [ops.file_step(TARGETS, goal.roles["head"].files[TARGETS])])
