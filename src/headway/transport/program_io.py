"""Reading and writing for programs: reads output with a size limit, in pieces or lines, and writes input."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headway.errors import Unanswered

OnLine = Callable[[str], Awaitable[None] | None]

MAX_OUTPUT = 64 * 1024 * 1024  # bytes kept of each of stdout and stderr; the rest is read and discarded
CHUNK = 64 * 1024  # bytes per read or write


class Sink:
    """Collects bytes up to a limit, and calls a listener with each whole line."""

    def __init__(self, limit: int, on_line: OnLine | None) -> None:
        self.data = bytearray()
        self._limit = limit
        self._on_line = on_line
        self._part = b""

    async def feed(self, chunk: bytes) -> None:
        """Adds output."""
        if (room := self._limit - len(self.data)) > 0:
            self.data += chunk[:room]
        if self._on_line is None:
            return
        *whole, self._part = (self._part + chunk).split(b"\n")
        for line in whole:
            await self._pass_line(line)

    async def end(self) -> None:
        """Passes a last line without a line end to the listener."""
        if self._on_line is not None and self._part:
            await self._pass_line(self._part)
            self._part = b""

    async def _pass_line(self, line: bytes) -> None:
        assert self._on_line is not None
        result = self._on_line(line.decode(errors="replace").rstrip("\r"))
        if inspect.isawaitable(result):
            await result

    @property
    def text(self) -> str:
        """The collected bytes as text."""
        return self.data.decode(errors="replace")


class StreamSplitter:
    """Splits a stream into lines and blocks of known size. `read` returns the next piece, b"" at the end."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], *, most: int = MAX_OUTPUT) -> None:
        self._read = read
        self._most = most  # limit for one line or block, so that the other side can't exhaust the memory here
        self._rest = b""

    async def line(self) -> bytes | None:
        """Returns the next line without its end; None if no whole line follows. Raises Unanswered for one that is too
        long."""
        while b"\n" not in self._rest:
            piece = await self._read()
            if not piece:
                return None
            self._rest += piece
            self._hold(len(self._rest) - len(piece))
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def exactly(self, size: int) -> bytes:
        """Returns exactly `size` bytes. Raises Unanswered if the stream ends before that, or if `size` exceeds the
        limit."""
        self._hold(size)
        pieces, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            piece = await self._read()
            if not piece:
                raise Unanswered("the answer is incomplete")
            pieces.append(piece)
            missing -= len(piece)
        whole = b"".join(pieces)
        self._rest = whole[size:]
        return whole[:size]

    def _hold(self, size: int) -> None:
        if size > self._most:
            raise Unanswered(f"it answered with {size} bytes at once, more than the {self._most} it may")


async def pump(reader: Any, sink: Sink) -> None:
    """Reads a stream to its end."""
    while chunk := await reader.read(CHUNK):
        await sink.feed(chunk)
    await sink.end()


async def write_all(writer: Any, data: bytes | None) -> None:
    """Writes everything and closes. A reader that closes early causes no error here; its exit code shows it."""
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
    """Writes pieces as they come and closes; otherwise like `write_all`."""
    try:
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
    except (BrokenPipeError, ConnectionResetError, OSError):
        return
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
