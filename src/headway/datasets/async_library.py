"""The dataset library of a cluster for asyncio: in a folder of the server's machine for local clusters, otherwise on the
shared storage of owned machines (`remote_library.RemoteDatasetLibrary`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headway.datasets.library import DatasetLibrary, Progress
from headway.datasets.manifest import Manifest, Source


class AsyncDatasetLibrary(Protocol):
    """The methods of DatasetLibrary as coroutines. They raise Stopped when `Progress.stop` is set."""

    async def bring(self, name: str, source: Source, progress: Progress, before: int) -> Manifest: ...

    async def publish(self, name: str, number: int, manifest: Manifest) -> bool: ...

    async def done(self, name: str) -> None: ...

    async def verify(self, name: str, number: int, digest: str, progress: Progress) -> list[str]: ...

    async def remove(self, name: str, number: int) -> int: ...


class LocalDatasetLibrary:
    """A library in a folder on the server's machine."""

    def __init__(self, library: DatasetLibrary) -> None:
        self._library = library

    async def bring(self, name: str, source: Source, progress: Progress, before: int) -> Manifest:
        return await asyncio.to_thread(self._library.bring, name, source, progress, before)

    async def publish(self, name: str, number: int, manifest: Manifest) -> bool:
        return await asyncio.to_thread(self._library.publish, name, number, manifest)

    async def done(self, name: str) -> None:
        await asyncio.to_thread(self._library.done, name)

    async def verify(self, name: str, number: int, digest: str, progress: Progress) -> list[str]:
        return await asyncio.to_thread(self._library.verify, name, number, digest, progress)

    async def remove(self, name: str, number: int) -> int:
        return await asyncio.to_thread(self._library.remove, name, number)
