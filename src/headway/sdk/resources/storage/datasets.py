"""Datasets."""

from __future__ import annotations

import builtins

from headway.schemas.operations import OperationOut
from headway.schemas.storage.datasets import DatasetIn, DatasetOut, DatasetRemoveIn, S3In
from headway.sdk.connection import Resource, cluster_path


class Datasets(Resource):
    """Versioned, read-only datasets of a cluster."""

    def list(self, cluster: str) -> builtins.list[DatasetOut]:
        """Returns every version of every dataset, by name and number."""
        return self._connection.get_list(cluster_path(cluster, "datasets"), DatasetOut)

    def add(self, cluster: str, name: str, source: str, *, s3: S3In | None = None) -> OperationOut:
        """Queues a new version from a folder of the server's machine or s3://BUCKET/PREFIX (`s3`:
        headway.sdk.aws_credentials.s3_access).

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
