"""Backups, volumes and datasets."""

from __future__ import annotations

import builtins

from headway.schemas.backups import BackupIn, BackupOut, BenchIn, RestoreIn, VerifyIn, VolumeSpeedOut
from headway.schemas.clusters import OperationOut
from headway.schemas.datasets import DatasetIn, DatasetOut, DatasetRemoveIn, S3In
from headway.schemas.storage import StorageOut
from headway.sdk.connection import Resource, cluster_path


class Backups(Resource):
    """Backups of clusters on the server's machine."""

    def create(self, cluster: str, to: str, passphrase: str) -> OperationOut:
        """Queues a backup into a folder of the server's machine; `kept` of its operation names the file."""
        return self._connection.post(
            cluster_path(cluster, "backup"), OperationOut, BackupIn(to=to, passphrase=passphrase)
        )

    def list(self, folder: str = "") -> builtins.list[BackupOut]:
        """Returns the backups in a folder of the server's machine, latest first ("": in all folders that cluster files name)."""
        return self._connection.get_list("/backups", BackupOut, params={"folder": folder})

    def verify(self, path: str, passphrase: str) -> BackupOut:
        """Reads the whole backup and returns it. Raises Refused when it is damaged or incomplete."""
        return self._connection.post(
            "/backups/verify", BackupOut, VerifyIn(path=path, passphrase=passphrase), timeout_s=3600
        )

    def restore(self, cluster: str, path: str, passphrase: str, *, confirmed: bool = False) -> OperationOut:
        """Queues restoring a cluster. Raises NeedsConfirmation when the server has a cluster of this name and `confirmed` is
        False."""
        body = RestoreIn(path=path, passphrase=passphrase, confirmed=confirmed)
        return self._connection.post(cluster_path(cluster, "restore"), OperationOut, body)


class Storage(Resource):
    """A cluster's volumes."""

    def get(self, cluster: str) -> StorageOut:
        """Returns each volume: the nodes that lost it, its usage and its last measured throughput."""
        return self._connection.get(cluster_path(cluster, "storage"), StorageOut)

    def benchmark(self, cluster: str, *, node: str = "", mib: int = 256) -> list[VolumeSpeedOut]:
        """Measures and returns each volume's throughput from one machine ("": the head), writing `mib` MiB to each."""
        body = BenchIn(node=node, mib=mib)
        found = self._connection.request_json(
            "POST", cluster_path(cluster, "storage", "bench"), body=body, timeout_s=3600
        )
        return [VolumeSpeedOut.model_validate(row) for row in found]


class Datasets(Resource):
    """Versioned, read-only datasets of a cluster."""

    def list(self, cluster: str) -> builtins.list[DatasetOut]:
        """Returns every version of every dataset, by name and number."""
        return self._connection.get_list(cluster_path(cluster, "datasets"), DatasetOut)

    def add(self, cluster: str, name: str, source: str, *, s3: S3In | None = None) -> OperationOut:
        """Queues a new version from a folder of the server's machine or s3://BUCKET/PREFIX (`s3`:
        headway.sdk.s3.s3_access).

        `kept` of its operation contains the mount point."""
        return self._connection.post(
            cluster_path(cluster, "datasets"),
            OperationOut,
            DatasetIn.model_validate({"name": name, "source": source, "s3": s3}),
        )

    def verify(self, cluster: str, name: str, version: int) -> OperationOut:
        """Queues reading every file of a version again; the operation fails when a file is damaged."""
        return self._connection.post(cluster_path(cluster, "datasets", name, str(int(version)), "verify"), OperationOut)

    def remove(self, cluster: str, name: str, version: int, *, force: bool = False) -> OperationOut:
        """Queues the removal of a version. Raises Conflict while a job's lineage names it, unless `force`."""
        path = cluster_path(cluster, "datasets", name, str(int(version)), "remove")
        return self._connection.post(path, OperationOut, DatasetRemoveIn(force=force))
