"""One machine for one slot of a cluster that works, without looking at the others."""

from __future__ import annotations

from collections.abc import Collection

from headway.changes.cluster_changes import Goal
from headway.cluster import secrets
from headway.cluster.active_head import the_head
from headway.cluster.apply import Run
from headway.cluster.context import Env, Say
from headway.cluster.desired_state import goal_of, site_of
from headway.cluster.observe import machines_of
from headway.domain.changeset import Change, ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.observed import NOT_SEEN, Observed
from headway.domain.slots import choose
from headway.errors import Refused


async def bring(
    cluster: Cluster, env: Env, name: str, say: Say, *, why: str = "Slurm asked for it", image: str = ""
) -> None:
    """Makes the machine, sets it up and starts its slurmd last. `image`: as in Run. Raises HeadwayError; what was made stays
    to be looked at or given back."""
    machines = await machines_of(env, cluster.name)
    head = await the_head(cluster, env, machines)
    goal = await _goal(cluster, env, {*machines, name})
    have = await secrets.ensure(env.store, cluster, cluster.machine_names)
    place = await env.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    observed = Observed(machines, {head.name: NOT_SEEN})
    run = Run(goal, env, say, place, have, observed, ChangeSet(cluster.name, ()), image=image)
    run.machines.update(machines)
    run.controller_up.set()
    await run.bring(name, [Change("machine.create", name, name, why)])


async def _goal(cluster: Cluster, env: Env, machines: Collection[str]) -> Goal:
    place = await env.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no network", hint="headway apply")
    site = await site_of(cluster, env, place, choose(cluster, machines), give_uids=False)
    return await goal_of(cluster, site, await env.store.secrets.of_cluster(cluster.name))
