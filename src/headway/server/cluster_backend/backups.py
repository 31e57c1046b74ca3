"""Writes and restores backups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.cluster import Cluster
from headway.domain.operation_progress import ReportProgress
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.backup.archive import Header


class BackupsBackend:
    """Implements services.cluster_backend.ClusterBackups."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def back_up(
        self, cluster: Cluster, about: Mapping[str, Any], report: ReportProgress, path: Path, header: Header, key: bytes
    ) -> None:
        from headway.backup.create import back_up

        await back_up(cluster, about, await self._pool.context(cluster), report, path, header, key)

    async def restore(self, cluster: Cluster, report: ReportProgress, path: Path, key: bytes, ref: str) -> None:
        from headway.backup.restore import restore_cluster
        from headway.environments.image_environment import provide_image_environment

        async with self._pool.machine_lock(cluster) as opened:
            await restore_cluster(cluster, opened.context, report, path, key, ref)
            opened.cluster = cluster
        await provide_image_environment(cluster, opened.context, report)
