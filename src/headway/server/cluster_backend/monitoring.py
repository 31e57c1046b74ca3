"""Queries Prometheus and sends alerts through Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.billing.ledger import Notification
from headway.domain.cluster import Cluster
from headway.server.cluster_backend.connections import ConnectionPool


class MonitoringBackend:
    """Implements services.cluster_backend.ClusterMonitoring."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def query_metrics(
        self, cluster: Cluster, queries: Sequence[MetricQuery], start: float, end: float, step_s: int
    ) -> tuple[MetricRow, ...]:
        from headway.cluster.monitoring.prometheus_client import query_range

        slurm = await self._pool.slurm(cluster)
        opened = await self._pool.opened(cluster)
        return await query_range(opened.context.connections, slurm.head, queries, start, end, step_s)

    async def send_alerts(self, cluster: Cluster, notifications: Sequence[Notification]) -> None:
        from headway.cluster.monitoring.alertmanager_client import send_alerts

        slurm = await self._pool.slurm(cluster)
        opened = await self._pool.opened(cluster)
        await send_alerts(opened.context.connections, slurm.head, notifications, time.time())
