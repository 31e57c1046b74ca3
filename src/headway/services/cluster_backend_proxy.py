"""The part of the cluster backend that steers the proxy of services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.domain.serving.service_figures import MetricsReading
from headway.domain.serving.service_proxy import ProxyReading, ProxySettings, ReplicaAddress


class ClusterServiceProxy(Protocol):
    """Steers the proxy that carries the traffic of services."""

    async def steer_proxy(self, cluster: Cluster, settings: ProxySettings) -> ProxyReading:
        """Gives the proxy on the head its services, servers and keys; without services it is stopped. Returns its address and
        figures. Raises Unreachable, and Refused if it can't be set."""
        ...

    async def read_service_metrics(
        self, cluster: Cluster, after: str, replicas: Sequence[ReplicaAddress]
    ) -> MetricsReading:
        """Returns the requests that the proxy has finished after those of the reading with this mark, and the counters that
        replicas publish. Raises Unreachable, and CommandFailed if they can't be read."""
        ...
