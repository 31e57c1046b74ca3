"""Where a cluster's dataset versions are stored: on the server's machine for local clusters (LocalLibrary),
otherwise on the shared storage of an inventory's machines (`remote_version_store.RemoteLibrary`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from headway.datasets.manifest import Manifest, Source
from headway.datasets.version_store import Library, Progress


class LibraryLocation(Protocol):
    """The methods of Library as coroutines. They raise Stopped when `Progress.stop` is set."""

    async def bring(self, name: str, source: Source, progress: Progress, before: int) -> Manifest: ...

    async def publish(self, name: str, number: int, manifest: Manifest) -> bool: ...

    async def done(self, name: str) -> None: ...

    async def verify(self, name: str, number: int, digest: str, progress: Progress) -> list[str]: ...

    async def remove(self, name: str, number: int) -> int: ...


class LocalLibrary:
    """A library in a folder on the server's machine."""

    def __init__(self, library: Library) -> None:
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
