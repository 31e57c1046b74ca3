"""Backups of clusters."""

from __future__ import annotations

import builtins

from headway.schemas.operations import OperationOut
from headway.schemas.storage.backups import BackupIn, BackupOut, RestoreIn, VerifyIn
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
