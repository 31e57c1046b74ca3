"""Responses that stream bytes or frames."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.errors import NotAllowed
from headway.schemas.submission.stream_frames import frame
from headway.services.error_report import error_out
from headway.services.jobs.log_stream import StreamAborted

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class ByteStream(StreamingResponse):
    """Streams `content`. If that raises StreamAborted, the response is cut off without its final chunk, so that no
    client takes it for complete. `resources` is closed when the response has ended, even if it never began."""

    media_type = "application/octet-stream"

    def __init__(
        self,
        content: AsyncIterator[bytes],
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        resources: contextlib.ExitStack,
    ) -> None:
        super().__init__(content, status_code, {**HEADERS, **(headers or {})})
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        with contextlib.suppress(StreamAborted):
            await super().stream_response(send)


class _LastPiece(bytes):
    """Marks the piece after which a stream is aborted."""


def not_allowed_note(why: str) -> bytes:
    """Returns the last piece of a plain log stream whose reader has lost the right to read it."""
    return _LastPiece(note_line(why))


def not_allowed_frame(why: str) -> bytes:
    """Returns the last frame of a framed stream whose reader has lost the right to read it."""
    return error_frame(NotAllowed(why))


def error_frame(error: BaseException) -> bytes:
    """Returns a frame for an error that happened after the response had begun."""
    return frame("error", error_out(error).model_dump_json().encode())


def note_line(words: str) -> bytes:
    """Returns a line in a plain log stream that is not part of the log."""
    return f"--- {words} ---\n".encode()


async def abort_after_last_piece(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Yields the pieces. Raises StreamAborted after one made by `not_allowed_note`."""
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield piece
            if isinstance(piece, _LastPiece):
                raise StreamAborted
