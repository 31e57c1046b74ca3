"""Steers the proxy of services on the head of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.serving.service_figures import GROWTH, MetricsReading, ReplicaCounters, ServiceFigures
from headway.domain.serving.service_proxy import (
    ProxyReading,
    ProxySettings,
    ReplicaAddress,
    ServerReading,
    ServiceReading,
)
from headway.errors import Refused
from headway.server.cluster_backend.connections import ConnectionPool

ANSWER_S = 60.0


class ServiceProxyBackend:
    """Implements services.cluster_backend.ClusterServiceProxy."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def steer_proxy(self, cluster: Cluster, settings: ProxySettings) -> ProxyReading:
        from headway.transport.remote_program import program_source

        connection = await self._pool.slurm(cluster)
        context = await self._pool.context(cluster)
        argv = ["python3", "-I", "-S", "-c", program_source("steer_proxy")]
        sent = json.dumps(asdict(settings)).encode()
        ran = await context.connections.remote(connection.head, argv, timeout_s=ANSWER_S, input=sent, check=False)
        if ran.code:
            last = (ran.stderr.strip().splitlines() or [f"it ended with {ran.code}"])[-1]
            raise Refused(
                f"the proxy of services on {connection.head.name} can't be set: {last}",
                hint=f"headway exec {cluster.name} -- journalctl -u headway-serve -n 50",
            )
        services = {name: _reading(found) for name, found in json.loads(ran.stdout)["services"].items()}
        return ProxyReading(connection.head.address, services)

    async def read_service_metrics(
        self, cluster: Cluster, after: str, replicas: Sequence[ReplicaAddress]
    ) -> MetricsReading:
        from headway.transport.remote_program import program_source

        connection = await self._pool.slurm(cluster)
        context = await self._pool.context(cluster)
        argv = ["python3", "-I", "-S", "-c", program_source("read_service_metrics")]
        asked = [{"name": f"{one.service}/{one.name}", "node": one.node, "port": one.port} for one in replicas]
        sent = json.dumps({"after": after, "growth": GROWTH, "replicas": asked}).encode()
        ran = await context.connections.remote(connection.head, argv, timeout_s=ANSWER_S, input=sent)
        found = json.loads(ran.stdout)
        return MetricsReading(
            found["after"],
            {_replica_key(key): ServiceFigures.of(one) for key, one in found["requests"].items()},
            {_replica_key(key): ReplicaCounters(**one) for key, one in found["counters"].items()},
        )


def _replica_key(name: str) -> tuple[str, str]:
    service, _, replica = name.partition("/")
    return service, replica


def _reading(found: Mapping[str, Any]) -> ServiceReading:
    known = {field.name for field in fields(ServiceReading)} - {"servers"}
    figures = {name: value for name, value in found.items() if name in known}
    return ServiceReading(**figures, servers={name: ServerReading(**one) for name, one in found["servers"].items()})
