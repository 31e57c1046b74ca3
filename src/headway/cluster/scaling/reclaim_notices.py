"""Notices of providers that they reclaim a machine (spot machines). Where they come from is the provider's matter: `notices` in
`providers/cloud/aws/cloud.py` reads those of EC2."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.providers.base import Provider, ReclaimingProvider


async def reclaim_notices(provider: Provider, cluster: Cluster) -> dict[str, float]:
    """Returns slot -> when the provider reclaims its machine, in unix seconds."""
    if not isinstance(provider, ReclaimingProvider):
        return {}
    return {
        notice.machine: notice.at
        for notice in await provider.notices(cluster.name)
        if notice.machine in cluster.group_of
    }
