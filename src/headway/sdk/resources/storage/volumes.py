"""Volumes."""

from __future__ import annotations

from headway.domain.storage.speed_test import DEFAULT_SPEED_TEST_MIB
from headway.schemas.storage.volumes import StorageOut, VolumeSpeedIn, VolumeSpeedOut
from headway.sdk.connection import Resource, cluster_path


class Storage(Resource):
    """A cluster's volumes."""

    def get(self, cluster: str) -> StorageOut:
        """Returns each volume: the nodes that lost it, its usage and its last measured throughput."""
        return self._connection.get(cluster_path(cluster, "storage"), StorageOut)

    def benchmark(self, cluster: str, *, node: str = "", mib: int = DEFAULT_SPEED_TEST_MIB) -> list[VolumeSpeedOut]:
        """Measures and returns each volume's throughput from one machine ("": the head), writing `mib` MiB to each."""
        body = VolumeSpeedIn(node=node, mib=mib)
        found = self._connection.request_json(
            "POST", cluster_path(cluster, "storage", "bench"), body=body, timeout_s=3600
        )
        return [VolumeSpeedOut.model_validate(row) for row in found]
