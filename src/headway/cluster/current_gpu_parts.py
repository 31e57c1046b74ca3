"""Keeps the GPUs of existing nodes divided as they are until a roll changes that, on drained nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headway.changes.cluster_changes import SLURM_CONF, DesiredState
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import render_desired_state
from headway.cluster.observe import observe_cluster
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.machine import Machine
from headway.domain.machines.observed_state import Observed
from headway.domain.machines.site import Site
from headway.render.slurm.hardware.gpu_parts_now import parts_now

READ_S = 30.0


async def observe_with_parts(
    cluster: Cluster,
    context: ClusterContext,
    site: Site,
    secrets: Mapping[str, str],
    divided: Collection[str] = (),
) -> tuple[Site, DesiredState, Observed]:
    """Returns the site, the desired and the observed state, in which nodes that exist keep their GPUs divided as in the
    present slurm.conf. `divided`: drained nodes that get the cluster file's division now."""
    goal = await render_desired_state(cluster, site, secrets)
    observed = await observe_cluster(goal, context)
    names = observed.machines.keys() - set(divided)
    present = parts_now(cluster, site, observed.texts.get(SLURM_CONF, ""), names)
    if not present:
        return site, goal, observed
    site = replace(site, parts_now=present)
    goal = await render_desired_state(cluster, site, secrets)
    return site, goal, await observe_cluster(goal, context)


async def read_parts_now(
    cluster: Cluster, context: ClusterContext, site: Site, head: Machine, names: Collection[str]
) -> dict[str, GpuParts]:
    """Returns how the GPUs of these nodes are divided, where the cluster file says otherwise. Raises HeadwayError if the
    head's slurm.conf can't be read."""
    if not any(group.plan.gpus for group in cluster.groups):
        return {}
    ran = await context.connections.remote(head, ["cat", SLURM_CONF], timeout_s=READ_S)
    return parts_now(cluster, site, ran.stdout, names)
