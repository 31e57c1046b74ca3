"""The part of the cluster backend that steers the proxy of services."""

from __future__ import annotations

from typing import Protocol

from headway.domain.cluster import Cluster
from headway.domain.service_proxy import ProxyReading, ProxySettings


class ClusterServiceProxy(Protocol):
    """Steers the proxy that carries the traffic of services."""

    async def steer_proxy(self, cluster: Cluster, settings: ProxySettings) -> ProxyReading:
        """Gives the proxy on the head its services, servers and keys; without services it is stopped. Returns its address and
        figures. Raises Unreachable, and Refused if it can't be set."""
        ...
