"""What `run` and `remote` share: reading a program's output with a bound, and giving it its input."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

OnLine = Callable[[str], Awaitable[None] | None]

MAX_OUTPUT = 64 * 1024 * 1024  # bytes kept of each of stdout and stderr; the rest is read and dropped
CHUNK = 64 * 1024  # bytes read or written at once


class Sink:
    """Collects up to a limit of bytes, and hands whole lines to a listener."""

    def __init__(self, limit: int, on_line: OnLine | None) -> None:
        self.data = bytearray()
        self._limit = limit
        self._on_line = on_line
        self._part = b""

    async def feed(self, chunk: bytes) -> None:
        if (room := self._limit - len(self.data)) > 0:
            self.data += chunk[:room]
        if self._on_line is None:
            return
        *whole, self._part = (self._part + chunk).split(b"\n")
        for line in whole:
            await self._tell(line)

    async def end(self) -> None:
        if self._on_line is not None and self._part:
            await self._tell(self._part)
            self._part = b""

    async def _tell(self, line: bytes) -> None:
        assert self._on_line is not None
        told = self._on_line(line.decode(errors="replace").rstrip("\r"))
        if inspect.isawaitable(told):
            await told

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


async def pump(reader: Any, sink: Sink) -> None:
    """Reads to the end of the stream."""
    while chunk := await reader.read(CHUNK):
        await sink.feed(chunk)
    await sink.end()


async def write_all(writer: Any, data: bytes | None) -> None:
    """Writes everything and closes; a reader that went away early is its own business (its exit code tells)."""
    try:
        for start in range(0, len(data or b""), CHUNK):
            writer.write((data or b"")[start : start + CHUNK])
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, OSError):
        return
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            if hasattr(writer, "write_eof") and writer.can_write_eof():
                writer.write_eof()


async def write_pieces(writer: Any, pieces: AsyncIterator[bytes]) -> None:
    """The same of input that comes bit by bit."""
    try:
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, OSError):
        return
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
