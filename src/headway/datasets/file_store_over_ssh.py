"""Stores the files of dataset versions in a folder that owned machines share: their head does the work. Slow to import: it
loads the SSH client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing
from typing import Any, NoReturn, TypeVar

from headway.cluster.active_head import require_active_head
from headway.cluster.context import ClusterContext
from headway.datasets.file_progress import FileProgress, Stopped
from headway.datasets.file_store_program import MARK
from headway.datasets.manifest import DatasetManifest
from headway.datasets.source import DatasetSource, Item, Listing
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.errors import Refused, Unreachable
from headway.transport.remote_program import with_modules

_WAITS_S = 0.5  # seconds between checks whether the work was stopped
_MODULES = (
    "headway.errors",
    "headway.datasets.source",
    "headway.datasets.manifest",
    "headway.datasets.file_progress",
    "headway.datasets.store_folders",
    "headway.datasets.import_journal",
    "headway.datasets.import_files",
    "headway.datasets.verify_files",
    "headway.datasets.file_store",
    "headway.datasets.file_store_program",
)
T = TypeVar("T")


class SshDatasetFileStore:
    """The file store in a folder that owned machines share. The head works on it as root; content is sent there as
    it is read."""

    def __init__(self, cluster: Cluster, context: ClusterContext) -> None:
        self._cluster, self._context = cluster, context

    async def import_files(
        self, name: str, source: DatasetSource, progress: FileProgress, before: int
    ) -> DatasetManifest:
        """Sends a whole source to the head and returns its manifest. See DatasetFileStore.import_files."""
        listing = await asyncio.to_thread(source.listing)
        progress.of_files, progress.of_bytes = len(listing.files), listing.size
        feed: asyncio.Queue[bytes] = asyncio.Queue(2)
        requested: asyncio.Queue[Item] = asyncio.Queue()
        feed.put_nowait(_line(listing))
        sends = asyncio.create_task(_send(source, requested, progress, feed))
        try:
            async with aclosing(self._talk(["import", name, str(before)], progress, feed)) as answers:  # type: ignore[type-var]
                while (answer := await _beside(sends, anext(answers, None))) is not None:
                    if "text" in answer:
                        progress.files = progress.of_files
                        return await asyncio.to_thread(DatasetManifest.read, answer["text"])
                    progress.files, progress.bytes = answer["files"], answer["bytes"]
                    requested.put_nowait(listing.files[answer["send"]])
        finally:
            sends.cancel()
            await asyncio.gather(sends, return_exceptions=True)
        raise Unreachable(f"{self._cluster.head} closed the connection without an answer")

    async def publish(self, name: str, number: int, manifest: DatasetManifest) -> bool:
        """Creates the version. See DatasetFileStore.publish."""
        feed: asyncio.Queue[bytes] = asyncio.Queue()
        feed.put_nowait(manifest.text)
        feed.put_nowait(b"")
        return bool((await self._last(["publish", name, str(number)], FileProgress(), feed))["made"])

    async def end_import(self, name: str) -> None:
        """Ends an import. See DatasetFileStore.end_import."""
        await self._last(["end-import", name], FileProgress())

    async def verify(self, name: str, number: int, digest: str, progress: FileProgress) -> list[str]:
        """Returns a line for each fault of a version. See DatasetFileStore.verify."""
        return [str(fault) for fault in (await self._last(["verify", name, str(number), digest], progress))["wrong"]]

    async def remove(self, name: str, number: int) -> int:
        """Removes a version and returns the freed bytes. See DatasetFileStore.remove."""
        return int((await self._last(["remove", name, str(number)], FileProgress()))["freed"])

    async def _last(
        self, words: list[str], progress: FileProgress, feed: asyncio.Queue[bytes] | None = None
    ) -> dict[str, Any]:
        """Returns the last answer; earlier answers update `progress`."""
        last: dict[str, Any] = {}
        async with aclosing(self._talk(words, progress, feed)) as answers:  # type: ignore[type-var]
            async for last in answers:
                for name in {"files", "bytes", "of_files", "of_bytes"} & last.keys():
                    setattr(progress, name, last[name])
        if not last:
            raise Unreachable(f"{self._cluster.head} closed the connection without an answer")
        return last

    async def _talk(
        self, words: list[str], progress: FileProgress, feed: asyncio.Queue[bytes] | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the answers of the program on the head, and the text of a manifest. Raises the errors that it
        reports."""
        head = await require_active_head(self._cluster, self._context, await self._context.machines(self._cluster.name))
        what, name, *more = words
        argv = _argv(what, self._cluster.dataset_store_folder, name, *more)
        async with aclosing(self._context.connections.converse(head, argv, _fed(feed))) as output:  # type: ignore[type-var]
            answers = Answers()
            while (part := await _unless_stopped(anext(output, None), progress)) is not None:
                kind, data = part
                if kind == "out":
                    for answer in answers.of(data):
                        yield _sound(answer, head)
                elif kind == "err":
                    answers.complaint = (answers.complaint + data)[-500:]
                elif data != b"0":
                    raise Unreachable(f"{head.name}: {answers.complaint.decode(errors='replace').strip() or data!r}")


async def _send(
    source: DatasetSource, requested: asyncio.Queue[Item], progress: FileProgress, feed: asyncio.Queue[bytes]
) -> NoReturn:
    """Sends each requested file, in pieces. Raises Stopped, or Refused when a file can't be read."""
    while True:
        pieces = source.read(await requested.get())
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await feed.put(len(piece).to_bytes(MARK, "big") + piece)
            progress.step(len(piece))
        await feed.put(bytes(MARK))


async def _beside(other: asyncio.Task[NoReturn], work: Awaitable[T]) -> T:
    """Returns the result of `work`. If `other` fails first, raises its error."""
    mine = asyncio.ensure_future(work)
    try:
        await asyncio.wait({mine, other}, return_when=asyncio.FIRST_COMPLETED)
        return mine.result() if mine.done() else other.result()
    finally:
        mine.cancel()
        await asyncio.gather(mine, return_exceptions=True)


class Answers:
    """Splits the program's output into lines of JSON, and the text that one of them announces."""

    def __init__(self) -> None:
        self._rest, self._text = bytearray(), 0  # bytearray: a manifest may have gigabytes, and arrives in small pieces
        self.complaint = b""

    def of(self, data: bytes) -> list[dict[str, Any]]:
        """Returns the answers that are complete with this data."""
        self._rest += data
        found: list[dict[str, Any]] = []
        while True:
            if self._text:
                if len(self._rest) < self._text:
                    return found
                found.append({"text": bytes(memoryview(self._rest)[: self._text])})
                del self._rest[: self._text]
                self._text = 0
            end = self._rest.find(b"\n")
            if end < 0:
                return found
            answer = json.loads(self._rest[:end])
            del self._rest[: end + 1]
            self._text = int(answer.get("manifest", 0))
            if not self._text:
                found.append(answer)


def _sound(answer: dict[str, Any], head: Machine) -> dict[str, Any]:
    if "error" in answer:
        raise Refused(f"{head.name}: {answer['error']}", hint=str(answer.get("hint", "")))
    return answer


async def _fed(feed: asyncio.Queue[bytes] | None) -> AsyncIterator[bytes]:
    """Yields pieces from the queue until an empty one."""
    while feed is not None and (piece := await feed.get()):
        yield piece


async def _unless_stopped(work: Awaitable[T], progress: FileProgress) -> T:
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_WAITS_S))[0]:
            if progress.stop.is_set():
                raise Stopped("it was stopped")
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _line(listing: Listing) -> bytes:
    files = [(item.path, item.bytes, item.executable, item.stamp) for item in listing.files]
    return json.dumps({"files": files, "links": listing.links, "folders": listing.folders}).encode() + b"\n"


def _argv(what: str, root: str, name: str, *more: str) -> list[str]:
    return ["python3", "-I", "-S", "-c", with_modules(_MODULES), what, root, name, *more]
