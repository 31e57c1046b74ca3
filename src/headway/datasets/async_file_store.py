"""The file store of a cluster's datasets for asyncio: in a folder of the server's machine for local clusters, otherwise on
the shared storage of owned machines (`file_store_over_ssh.SshDatasetFileStore`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headway.datasets.file_store import DatasetFileStore, Progress
from headway.datasets.manifest import Manifest, Source


class AsyncDatasetFileStore(Protocol):
    """The methods of DatasetFileStore as coroutines. They raise Stopped when `Progress.stop` is set."""

    async def bring(self, name: str, source: Source, progress: Progress, before: int) -> Manifest: ...

    async def publish(self, name: str, number: int, manifest: Manifest) -> bool: ...

    async def done(self, name: str) -> None: ...

    async def verify(self, name: str, number: int, digest: str, progress: Progress) -> list[str]: ...

    async def remove(self, name: str, number: int) -> int: ...


class LocalDatasetFileStore:
    """A file store in a folder on the server's machine."""

    def __init__(self, file_store: DatasetFileStore) -> None:
        self._file_store = file_store

    async def bring(self, name: str, source: Source, progress: Progress, before: int) -> Manifest:
        return await asyncio.to_thread(self._file_store.bring, name, source, progress, before)

    async def publish(self, name: str, number: int, manifest: Manifest) -> bool:
        return await asyncio.to_thread(self._file_store.publish, name, number, manifest)

    async def done(self, name: str) -> None:
        await asyncio.to_thread(self._file_store.done, name)

    async def verify(self, name: str, number: int, digest: str, progress: Progress) -> list[str]:
        return await asyncio.to_thread(self._file_store.verify, name, number, digest, progress)

    async def remove(self, name: str, number: int) -> int:
        return await asyncio.to_thread(self._file_store.remove, name, number)
