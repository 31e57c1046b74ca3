"""The output of a batch, as files of a dataset. It is read on the head as the user of the batch."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from headway.datasets.source import DatasetSource, Item, Listing
from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.schemas.submission.exec_commands import ExecIn
from headway.services.app_state import AppState
from headway.services.batches.stored_batch import StoredBatch

BATCH_SCHEME = "batch:"  # begins the source of a version that is the output of a batch
_FORMAT = "%s %T@ %P\\0"  # of find: bytes, time of the last change, name
# The files that workers write. The user can put other files into the folder; they do not belong to the output.
_FILE = re.compile(rb"([0-9]{1,18}) ([0-9.]{1,40}) ((?:part|errors)-[0-9]{5,12}\.jsonl|batch\.json)")
_SILENCE_S = 120.0  # of a command until reading fails
T = TypeVar("T")


async def batch_output(state: AppState, cluster: str, source: str) -> Callable[[], DatasetSource]:
    """Returns what opens the source. Raises NotFound for an unknown batch."""
    row = await state.store.batches.by_id(cluster, source.removeprefix(BATCH_SCHEME))
    _, resolved = await state.clusters.get(cluster)
    folder, loop = f"{StoredBatch.of(row).folder}/output", asyncio.get_running_loop()
    return lambda: BatchOutput(state, resolved, row.user, folder, loop)


class BatchOutput:
    """The folder `output` of a batch, which its user can change at any time. Its methods are called in other threads than the
    event loop's. Implements datasets.source.DatasetSource."""

    def __init__(
        self, state: AppState, cluster: Cluster, user: str, folder: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._commands, self._cluster, self._user = state.backend.commands, cluster, user
        self._folder, self._loop = folder, loop

    def close(self) -> None:
        """Does nothing: nothing stays open."""

    def listing(self) -> Listing:
        """Returns the files that workers write. Raises Refused if they can't be listed."""
        argv = ["find", self._folder, "-mindepth", "1", "-maxdepth", "1", "-type", "f", "-printf", _FORMAT]
        ran = self._wait(self._commands.run_command(self._cluster, ExecIn(argv=argv), self._user))
        if ran.code != 0:
            error = base64.b64decode(ran.stderr_b64).decode(errors="replace").strip()
            raise Refused(f"{self._folder} can't be listed: {error[-500:]}", hint="headway batch show tells its state")
        found = map(_FILE.fullmatch, base64.b64decode(ran.stdout_b64).split(b"\0"))
        parts = ([group.decode() for group in one.groups()] for one in found if one)
        files = {name: Item(name, int(size), executable=False, stamp=f"{size} {at}") for size, at, name in parts}
        return Listing(tuple(files[name] for name in sorted(files)))

    def read(self, item: Item) -> Iterator[bytes]:
        """Yields the content of a file. Raises Refused when it can't be read completely, or is longer than it was listed."""
        pieces, size = self._output(["cat", "--", f"{self._folder}/{item.path}"]), 0
        try:
            while (piece := self._wait(_next_piece(pieces))) is not None:
                size += len(piece)
                if size > item.bytes:
                    raise Refused(f"{self._folder}/{item.path} has more than the {item.bytes} bytes that were listed")
                yield piece
        finally:
            self._wait(pieces.aclose())  # type: ignore[attr-defined]
        if size != item.bytes:
            raise Refused(f"{self._folder}/{item.path} has {size} bytes instead of {item.bytes}")

    async def _output(self, argv: list[str]) -> AsyncIterator[bytes]:
        """Yields the standard output of a command. Raises Refused if it fails."""
        error = b""
        parts = self._commands.run_interactive(self._cluster, argv, self._user, _nothing())
        async with aclosing(parts) as found:  # type: ignore[type-var]
            async for kind, data in found:
                if kind == "out":
                    yield data
                elif kind == "err":
                    error = (error + data)[-500:]
                elif data != b"0":
                    raise Refused(error.decode(errors="replace").strip() or f"{argv[0]} ended with {data!r}")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next_piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    """Returns the next piece, None at the end. Raises Refused if none arrives for a while, as from a named pipe."""
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await anext(pieces, None)
    except TimeoutError:
        raise Refused(f"a file of the output could not be read: no data for {_SILENCE_S:g} s") from None


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
