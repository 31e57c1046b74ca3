"""Quotas of users on /home and /scratch: what the head should have, and what it has."""

from __future__ import annotations

from collections.abc import Mapping

from headway.cluster import remote_steps
from headway.cluster.active_head import require_active_head
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.storage.quotas import HOME_PROJECTS, SCRATCH_PROJECTS, DesiredQuota, ObservedQuota


def desired_quotas(cluster: Cluster, uids: Mapping[str, int]) -> dict[str, DesiredQuota]:
    """Returns the quotas by volume. A volume without a limit is listed too, so that a former limit is removed."""
    storage = cluster.storage
    volumes = (
        (storage.home, storage.home_quota, HOME_PROJECTS),
        (storage.scratch, storage.scratch_quota, SCRATCH_PROJECTS),
    )
    here = {user.name: uids[user.name] for user in cluster.users if user.name in uids}
    return {path: DesiredQuota(limit or 0, first, here) for path, limit, first in volumes}


async def read_quotas(cluster: Cluster, context: ClusterContext) -> Mapping[str, ObservedQuota]:
    """Returns the state and use of quotas by volume. Raises Unreachable if the head does not answer."""
    machine = await require_active_head(cluster, context, await context.machines(cluster.name))
    uids = await context.store.linux_uids.known_uids(user.name for user in cluster.users)
    goal = desired_quotas(cluster, uids)
    seen, _ = await remote_steps.read_facts(context.connections, machine, files=(), units=(), quotas=goal)
    return seen.quotas
