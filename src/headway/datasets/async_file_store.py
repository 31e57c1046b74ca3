"""The file store of a cluster's datasets for asyncio: in a folder of the server's machine for local clusters, otherwise on
the shared storage of owned machines (`file_store_over_ssh.SshDatasetFileStore`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headway.datasets.file_progress import FileProgress
from headway.datasets.file_store import DatasetFileStore
from headway.datasets.manifest import DatasetManifest
from headway.datasets.source import DatasetSource


class AsyncDatasetFileStore(Protocol):
    """The methods of DatasetFileStore as coroutines. They raise Stopped when `FileProgress.stop` is set."""

    async def import_files(
        self, name: str, source: DatasetSource, progress: FileProgress, before: int
    ) -> DatasetManifest:
        """Reads a whole source and stores its content; no version has it yet. `before` is the number of a similar
        version, 0 for none. Raises Refused when a file can't be read or stored."""
        ...

    async def publish(self, name: str, number: int, manifest: DatasetManifest) -> bool:
        """Creates the version from content that `import_files` stored. Returns False if the number belongs to a version with
        another content, which stays."""
        ...

    async def end_import(self, name: str) -> None:
        """Ends an import: it can't be continued after this."""
        ...

    async def verify(self, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
        """Reads every file of a version again and returns a line for each fault. Removes the content of a damaged
        file."""
        ...

    async def remove(self, name: str, number: int) -> int:
        """Removes a version and returns the freed bytes. Does nothing if the version does not exist."""
        ...


class LocalDatasetFileStore:
    """A file store in a folder on the server's machine. Implements AsyncDatasetFileStore."""

    def __init__(self, file_store: DatasetFileStore) -> None:
        self._file_store = file_store

    async def import_files(
        self, name: str, source: DatasetSource, progress: FileProgress, before: int
    ) -> DatasetManifest:
        return await asyncio.to_thread(self._file_store.import_files, name, source, progress, before)

    async def publish(self, name: str, number: int, manifest: DatasetManifest) -> bool:
        return await asyncio.to_thread(self._file_store.publish, name, number, manifest)

    async def end_import(self, name: str) -> None:
        await asyncio.to_thread(self._file_store.end_import, name)

    async def verify(self, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
        return await asyncio.to_thread(self._file_store.verify, name, number, digest, progress)

    async def remove(self, name: str, number: int) -> int:
        return await asyncio.to_thread(self._file_store.remove, name, number)
