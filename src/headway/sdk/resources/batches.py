"""Batches."""

from __future__ import annotations

import builtins

from headway.schemas.submission.batches import BatchIn, BatchOut
from headway.sdk.connection import Resource, cluster_path


class Batches(Resource):
    """Batches: a program or a model computes a result for each row of a dataset."""

    def start(self, cluster: str, request: BatchIn) -> BatchOut:
        """Starts a batch. Raises Refused with all faults before anything is submitted."""
        return self._connection.post(cluster_path(cluster, "batches"), BatchOut, request)

    def list(self, cluster: str) -> builtins.list[BatchOut]:
        """Returns batches, latest first."""
        return self._connection.get_list(cluster_path(cluster, "batches"), BatchOut)

    def get(self, cluster: str, batch: str) -> BatchOut:
        """Returns a batch by its id, or the latest of its name."""
        return self._connection.get(cluster_path(cluster, "batches", batch), BatchOut)

    def stop(self, cluster: str, batch: str) -> BatchOut:
        """Ends a batch; what is computed remains. Raises Conflict if it has ended."""
        return self._connection.post(cluster_path(cluster, "batches", batch, "stop"), BatchOut)

    def retry(self, cluster: str, batch: str) -> BatchOut:
        """Continues a batch that has failed or was stopped. Raises Conflict for another one."""
        return self._connection.post(cluster_path(cluster, "batches", batch, "retry"), BatchOut)
