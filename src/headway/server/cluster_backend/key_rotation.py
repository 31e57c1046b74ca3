"""Replaces keys of running clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headway.domain.cluster import Cluster
from headway.domain.operation_progress import ReportProgress
from headway.server.cluster_backend.connections import ConnectionPool


class KeyRotationBackend:
    """Implements services.cluster_backend.ClusterKeyRotation."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def rotate_key(
        self, cluster: Cluster, report: ReportProgress, what: str, ref: str, begins: Callable[[], Awaitable[None]]
    ) -> None:
        from headway.cluster.keys.rotation import rotate_key

        async with self._pool.machine_lock(cluster) as opened:
            await rotate_key(cluster, opened.context, report, what, ref, begins)
