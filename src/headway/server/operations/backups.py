"""Handlers of backup and restore."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING

from headway.backup.retention import delete_old_backups
from headway.billing.prices.price_history import current_prices
from headway.domain.cluster import Cluster
from headway.domain.environment import IMAGE_SOURCE
from headway.domain.operation_kinds import BackupParams, RestoreParams
from headway.domain.operation_progress import ReportProgress
from headway.errors import HeadwayError, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.server.operations.operation_run import OperationRun
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import summary_of
from headway.services.cluster.operation_view import without_server_paths
from headway.services.storage.declared_environments import queue_declared_builds
from headway.services.storage.environments import missing_environments
from headway.services.storage.path_policy import path_faults
from headway.store import ClusterRow, Operation

if TYPE_CHECKING:
    from headway.backup.archive import Header


class BackupOperations:
    """Carries out operations of the kinds backup and restore."""

    def __init__(self, state: AppState, operation: Operation, report: ReportProgress) -> None:
        self._state = state
        self._operation = operation
        self._report = report

    async def backup(self) -> tuple[str, ...]:
        """Makes a backup and returns its path. Older ones beyond `keep` are removed."""
        from headway.backup.archive import Header
        from headway.backup.create import file_of

        state, name = self._state, self._operation.cluster
        row, cluster = await state.clusters.get(name)
        params = BackupParams.from_json(self._operation.params)
        header = Header(**params.header)
        path = file_of(Path(params.to), header)
        await back_up(state, row, cluster, self._report, path, header, await self._key())
        if params.keep:
            stay = await asyncio.to_thread(delete_old_backups, path.parent, name, params.keep, path)
            if stay:  # still a success: another backup would displace a further good one
                text = f"older ones could not be removed: {'; '.join(stay)}"
                await self._report("backup", text, level="warning", done=True)
                state.live.add_recent_event(
                    name, f"backups: {without_server_paths(text, path.parent)}", level="warning"
                )
        return (str(path),)

    async def restore(self) -> None:
        """Restores the cluster from a backup. After an error the partial restore is discarded."""
        try:
            await self._restore()
        except HeadwayError:
            await self._state.store.cluster_records.discard_partial_restore(
                self._operation.cluster
            )  # if the server was stopped during a restore
            raise

    async def _restore(self) -> None:
        from headway.backup import restore as keep
        from headway.backup import restore_checks

        state, name = self._state, self._operation.cluster
        params = RestoreParams.from_json(self._operation.params)
        path, key = Path(params.path), await self._key()
        await self._report("proof", "is being read")
        kept = await asyncio.to_thread(keep.read_contents, path, key)
        await restore_checks.require_matching_uids(name, state.store, kept.uids)
        document = Document.model_validate(kept.about["document"])
        resolved = await state.clusters.resolve(document)
        faults = await path_faults(state, resolved)
        if faults:
            raise InvalidSpec(faults)
        present = state.clusters.stored_slurm_version(resolved.cluster, None)
        machines = await state.backend.lifecycle.machines(resolved.cluster) if present else ()
        restore_checks.require_same_slurm(name, kept.proof.header, present, has_machines=bool(machines))
        await self._report("proof", f"{kept.proof.bytes} bytes are complete", done=True)
        count = await keep.restore_records(name, state.store, path, key, kept)
        await self._report("records", f"{count} of Headway's own records are restored", done=True)
        cluster = (
            await state.clusters.resolve(document)
        ).cluster  # resolved again, with the datasets from the restored records
        if cluster.provider.volumes_on_server:
            await self._datasets(cluster)
        owner = str(kept.about.get("owner") or "")
        await state.store.clusters.save(
            name, document.model_dump(), summary=summary_of(cluster), state="changing", owner=owner
        )
        await state.store.prices.record(
            name, current_prices(cluster, await state.store.prices.of_cluster(name), state.clock())
        )
        state.live.notify_row_changed(name)
        await state.forget(name)  # open connections use the old keys
        await state.backend.backups.restore(cluster, self._report, path, key, params.ref)
        await state.store.gpu_hour_cap_resets.revert_to(name, kept.proof.header.at)
        await self._environments(cluster)

    async def _datasets(self, cluster: Cluster) -> None:
        """Creates the folders of all datasets, because machines mount them, even if no backup could restore their files."""
        store, file_store = self._state.store, self._state.clusters.dataset_file_store(cluster)
        versions = await store.datasets.versions(cluster.name)
        for name in {version.name for version in versions}:
            await asyncio.to_thread(file_store.ready, name)
        lost = [
            version.label
            for version in versions
            if not (file_store.folder(version.name) / str(version.number)).is_dir()
        ]
        if lost:
            text = f"the files of {', '.join(lost)} are missing: add the same ones again with headway dataset add"
            await self._report("datasets", text, level="warning", done=True)

    async def _environments(self, cluster: Cluster) -> None:
        """Queues the builds of the cluster file's environments, and names the others whose files are missing."""
        await queue_declared_builds(self._state, cluster, self._operation.person, self._report)
        versions = await self._state.store.environments.versions(cluster.name)
        # An apply makes the environment of the node image.
        others = [one for one in versions if one.name not in cluster.environments and one.source != IMAGE_SOURCE]
        if lost := await missing_environments(self._state, cluster, others):
            text = (
                f"the files of {', '.join(one.label for one in lost)} are missing: rebuild them from their lock files"
            )
            await self._report("environments", f"{text} (headway env show prints one)", level="warning", done=True)

    async def _key(self) -> bytes:
        """Returns the encryption key stored for this operation. Raises Refused if it no longer exists."""
        value = await self._state.store.secrets.get(self._operation.cluster, self._operation.secret)
        if value is None:
            raise Refused("the key of this operation no longer exists", hint="start it again")
        return base64.b64decode(value)


async def back_up_cluster(run: OperationRun) -> tuple[str, ...]:
    """Makes a backup and returns its path."""
    return await BackupOperations(run.state, run.operation, run.report).backup()


async def restore_cluster(run: OperationRun) -> tuple[str, ...]:
    """Restores a cluster from a backup."""
    await BackupOperations(run.state, run.operation, run.report).restore()
    return ()


async def back_up(
    state: AppState, row: ClusterRow, cluster: Cluster, report: ReportProgress, path: Path, header: Header, key: bytes
) -> None:
    """Writes a backup to `path` and verifies it by reading it back. Raises the errors of headway.backup.create.back_up."""
    about = {"document": dict(row.document), "owner": row.owner, "created_at": row.created_at}
    began = time.monotonic()
    await state.backend.backups.back_up(cluster, about, report, path, header, key)
    await report("backup", str(path), done=True, seconds=time.monotonic() - began)
