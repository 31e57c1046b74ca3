"""Measures volumes and opens the file stores of dataset versions and software environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.storage.quotas import ObservedQuota
from headway.domain.storage.volume_space import VolumeSpace
from headway.schemas.storage.volumes import VolumeSpeedOut
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.datasets.async_file_store import AsyncDatasetFileStore
    from headway.environments.environment_file_store import EnvironmentFileStore


class StorageBackend:
    """Implements services.cluster_backend.ClusterStorage."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def measure_volumes(self, cluster: Cluster, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
        from headway.cluster.volumes.speed import measure_volumes

        return await measure_volumes(cluster, await self._pool.context(cluster), node, mib)

    async def dataset_file_store(self, cluster: Cluster) -> AsyncDatasetFileStore:
        from headway.datasets.file_store_over_ssh import SshDatasetFileStore

        return SshDatasetFileStore(cluster, await self._pool.context(cluster))

    async def environment_file_store(self, cluster: Cluster) -> EnvironmentFileStore:
        from headway.environments.environment_file_store import SshEnvironmentFileStore

        return SshEnvironmentFileStore(cluster, await self._pool.context(cluster))

    async def quotas(self, cluster: Cluster) -> Mapping[str, ObservedQuota]:
        from headway.cluster.volumes.quotas import read_quotas

        return await read_quotas(cluster, await self._pool.context(cluster))

    async def volume_space(self, cluster: Cluster) -> tuple[VolumeSpace, ...]:
        from headway.cluster.volumes.space import read_volume_space

        return await read_volume_space(cluster, await self._pool.context(cluster))
