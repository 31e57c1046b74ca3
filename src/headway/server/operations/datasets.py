"""The handler of dataset operations."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from headway.datasets.async_file_store import AsyncDatasetFileStore, LocalDatasetFileStore
from headway.datasets.file_progress import FileProgress
from headway.datasets.folder_source import FolderSource
from headway.datasets.manifest import DatasetManifest
from headway.datasets.s3_source import SCHEME, S3Access, S3Source
from headway.datasets.source import DatasetSource
from headway.datasets.verify_files import damage_text
from headway.domain.changeset import RESTART, Change
from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, DatasetVersion, format_bytes
from headway.domain.operation_kinds import DatasetParams
from headway.domain.operation_progress import ReportProgress
from headway.errors import HeadwayError, Refused
from headway.render.system.volume_mounts import unit_name
from headway.server.operations.operation_run import OperationRun
from headway.services.app_state import AppState
from headway.services.batches.output_source import BATCH_SCHEME, batch_output
from headway.services.storage.datasets import require_free_name, require_own_dataset
from headway.services.storage.path_policy import require_dataset_source
from headway.services.storage.version_removal import record_removal
from headway.store import Operation

FIRST_LOOK_S = 1.0  # seconds between progress reports, growing up to LAST_LOOK_S
LAST_LOOK_S = 20.0
T = TypeVar("T")


async def change_dataset(run: OperationRun) -> tuple[str, ...]:
    """Adds, verifies or removes a dataset version. Returns the mount point of an added version."""
    return await DatasetOperations(run.state, run.operation, run.report).carry_out()


class DatasetOperations:
    """Carries out an operation of the kind dataset."""

    def __init__(self, state: AppState, operation: Operation, report: ReportProgress) -> None:
        self._state = state
        self._operation = operation
        self._report = report
        self._cluster = operation.cluster
        self._params = DatasetParams.from_json(operation.params)
        self._name = self._params.name

    async def carry_out(self) -> tuple[str, ...]:
        """Runs the operation. Returns the mount point of a version that was added."""
        action = self._params.action
        self._file_store = await self._open_file_store()
        if action == "add":
            return (await self._add(),)
        version = await self._state.store.datasets.get(self._cluster, self._name, self._params.version or 0)
        await (self._verify(version) if action == "verify" else self._remove(version))
        return ()

    async def _open_file_store(self) -> AsyncDatasetFileStore:
        _, cluster = await self._state.clusters.get(self._cluster)
        if not cluster.provider.volumes_on_server:
            return await self._state.backend.storage.dataset_file_store(cluster)
        return LocalDatasetFileStore(self._state.clusters.dataset_file_store(cluster))

    async def _add(self) -> str:
        state, store = self._state, self._state.store
        _, cluster = await state.clusters.get(self._cluster)
        await self._require_name(cluster)
        path = self._params.source or ""
        number = await store.datasets.next_number(self._cluster, self._name)
        before = await store.datasets.versions(self._cluster, self._name)
        manifest = await self._import_files(path, number - 1)
        await self._require_name(cluster)  # others may have added versions meanwhile
        same = next((version for version in before if version.digest == manifest.digest and not version.damage), None)
        if same is not None and await self._file_store.publish(self._name, same.number, manifest):
            await self._report("version", f"{same.label} already has the same content", done=True)
            made = same
        else:
            # the number exists on disk if a server lost its records
            while not await self._file_store.publish(self._name, number, manifest):
                number += 1
            made = DatasetVersion(
                self._cluster, self._name, number, manifest.digest, len(manifest.files), manifest.size, path,
                self._operation.person, state.clock(),
            )  # fmt: skip
            await store.datasets.add(made)
            await self._report("version", f"{made.label} is kept, sha256 {made.digest[:12]}", done=True)
        await self._file_store.end_import(self._name)
        await self._place(attached=True)
        return made.path

    async def _require_name(self, cluster: Cluster) -> None:
        """Raises Refused for a name that the cluster's file uses, and NotAllowed if the output of a batch would become the
        latest version of another person's dataset."""
        if (self._params.source or "").startswith(BATCH_SCHEME):
            await require_own_dataset(self._state, cluster, self._name, self._operation.person)
        else:
            require_free_name(cluster, self._name)

    async def _import_files(self, path: str, before: int) -> DatasetManifest:
        source_made = await self._source(path)

        async def read(progress: FileProgress) -> DatasetManifest:
            source = await asyncio.to_thread(source_made)
            try:
                return await self._file_store.import_files(self._name, source, progress, before)
            finally:
                source.close()

        began = time.monotonic()
        manifest = await self._watched("files", "read", read)
        text = f"{len(manifest.files)} files, {format_bytes(manifest.size)} are read"
        await self._report("files", text, done=True, seconds=time.monotonic() - began)
        return manifest

    async def _source(self, path: str) -> Callable[[], DatasetSource]:
        if path.startswith(BATCH_SCHEME):
            return await batch_output(self._state, self._cluster, path)
        if not path.startswith(SCHEME):
            require_dataset_source(self._state, path)
            return lambda: self._opened(Path(path))
        value = await self._state.store.secrets.get(self._cluster, self._operation.secret)
        if value is None:
            raise Refused("the keys of this operation no longer exist", hint="start it again")
        access = S3Access(**json.loads(value))
        return lambda: S3Source(path, access)

    def _opened(self, path: Path) -> FolderSource:
        """Opens a source folder. Checks the folder that was opened, not the path, which may have changed. Raises
        Refused or NotAllowed."""
        folder = FolderSource(path)
        try:
            require_dataset_source(self._state, str(folder.real))
        except BaseException:
            folder.close()
            raise
        return folder

    async def _verify(self, version: DatasetVersion) -> None:
        began = time.monotonic()

        async def read(progress: FileProgress) -> list[str]:
            return await self._file_store.verify(version.name, version.number, version.digest, progress)

        damage = await self._watched("files", "read again", read)
        await self._state.store.datasets.record_verification(version, damage_text(damage))
        if damage:
            raise Refused(
                f"{version.label} is damaged:\n{damage_text(damage)}",
                hint=f"add it again as a new version: headway dataset add {version.name} --from {version.source}",
            )
        text = f"{version.files} files, {format_bytes(version.bytes)} are complete"
        await self._report("files", text, done=True, seconds=time.monotonic() - began)

    async def _remove(self, version: DatasetVersion) -> None:
        """Removes a version. Also finishes a removal that a killed server left half done."""
        force = bool(self._params.force)
        await record_removal(self._state.store.datasets, version, self._operation.person, force=force)
        freed = await self._file_store.remove(version.name, version.number)
        await self._report("version", f"{version.label} is removed, {format_bytes(freed)} are free", done=True)
        if not await self._state.store.datasets.versions(self._cluster, self._name):
            await self._place(attached=False)

    async def _place(self, *, attached: bool) -> None:
        """Mounts the dataset's folder on every machine that answers, or unmounts it; does nothing if that is already so. This
        applies the cluster's current file, unless that would also make other changes that need a confirmation."""
        state = self._state
        state.clusters.forget_datasets(self._cluster)
        _, cluster = await state.clusters.get(self._cluster)
        changes = await state.backend.lifecycle.plan(cluster)
        if not any(self._mine(change) for change in changes.changes):
            return
        others = [change for change in changes.disturbing_changes if not self._mine(change)]
        if any(change.kind != RESTART for change in others):
            todo = "mounts it" if attached else "unmounts it"
            text = f"{cluster.name} has other disturbing changes: headway apply {todo} with them"
            await self._report("machines", text, level="warning", done=True)
            return
        await self._apply(cluster, "mounted" if attached else "unmounted")

    async def _apply(self, cluster: Cluster, word: str) -> None:
        try:
            await self._state.backend.lifecycle.apply(cluster, self._report, restarts=False)
        except HeadwayError as error:
            raise Refused(
                f"{FOLDER}/{self._name} could not be {word} everywhere: {error.message}",
                hint="headway apply continues with it",
            ) from error

    def _mine(self, change: Change) -> bool:
        """Returns whether a change concerns this dataset's mount."""
        unit = unit_name(f"{FOLDER}/{self._name}")
        if change.kind in ("dataset.attach", "dataset.detach"):
            return change.what == self._name
        return change.what.rpartition("/")[2] == unit

    async def _watched(self, step: str, word: str, work: Callable[[FileProgress], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` and reports its progress. If cancelled, waits until the work has ended."""
        progress, pause = FileProgress(), FIRST_LOOK_S
        task = asyncio.create_task(work(progress))
        try:
            while not (await asyncio.wait({task}, timeout=pause))[0]:
                done, every = format_bytes(progress.bytes), format_bytes(progress.of_bytes)
                text = f"{progress.files} of {progress.of_files} files are {word}, {done} of {every}"
                await self._report(step, text if progress.of_files else "are being listed")
                pause = min(pause * 1.5, LAST_LOOK_S)
            return task.result()
        finally:
            progress.stop.set()
            await asyncio.wait({task})
