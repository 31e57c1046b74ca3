"""The HTTP protocol of the server's port: uvicorn's, with limits on how long and how large a request's head may be.

uvicorn waits without end for the rest of a head, so a client could keep any number of connections open with half a
request each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.api.http.security_headers import SECURITY_HEADERS

HEAD_S = 20.0  # seconds until a request's head must be complete
MAX_HEAD = 64 * 1024  # bytes
MAX_WAITING = 512  # connections at once whose next head is incomplete
_TOO_SLOW = (408, "Request Timeout", "the request headers did not arrive in time")
_TOO_LARGE = (431, "Request Header Fields Too Large", f"the request headers are larger than {MAX_HEAD // 1024} KiB")
_CROWDED = (503, "Service Unavailable", "too many connections wait for the rest of a request")


class WaitingRequests:
    """The connections of one server whose next request's head is incomplete. At most MAX_WAITING wait: another one
    closes the connection that has waited longest, so that clients who send whole requests are always served."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[object, tuple[asyncio.TimerHandle, Callable[[tuple[int, str, str]], None]]] = {}

    def add(self, connection: object, close: Callable[[tuple[int, str, str]], None]) -> None:
        """Starts the time limit of a connection, unless it runs already."""
        if connection in self._timers:
            return
        if len(self._timers) >= MAX_WAITING:
            oldest = next(iter(self._timers))
            close_oldest = self._timers[oldest][1]
            self.discard(oldest)
            close_oldest(_CROWDED)
        self._timers[connection] = self._loop.call_later(HEAD_S, close, _TOO_SLOW), close

    def discard(self, connection: object) -> None:
        """Ends the time limit of a connection."""
        found = self._timers.pop(connection, None)
        if found is not None:
            found[0].cancel()


class BoundedHeaderProtocol(HttpToolsProtocol):
    """Closes connections whose head is too slow (408) or too large (431)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        heads: WaitingRequests | None = getattr(self.server_state, "waiting_heads", None)
        if heads is None:
            heads = self.server_state.waiting_heads = WaitingRequests(self.loop)  # type: ignore[attr-defined]
        self._heads = heads
        self._head_size = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heads.add(self, self._refuse)

    def connection_lost(self, exc: Exception | None) -> None:
        self._heads.discard(self)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_size = False, 0
        self._heads.discard(self)
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            self._heads.discard(self)
        elif self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._refuse(_TOO_LARGE)
            else:
                self._heads.add(self, self._refuse)
        elif self._idle:
            # Empty lines, or the rest of a body whose request was answered already: uvicorn has ended its limit for
            # idle connections because data came.
            self._heads.add(self, self._refuse)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, why: tuple[int, str, str]) -> None:
        """Closes the connection with an answer. While an earlier request of it is answered, only too large a head does:
        afterwards uvicorn's limit for idle connections applies."""
        self._heads.discard(self)
        if self.transport.is_closing() or not (self._idle or why is _TOO_LARGE):
            return
        if self._head_size and self._idle:  # a client that sent nothing does not expect an answer
            self._answer(*why)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answers to what is no HTTP request, and closes the connection."""
        self._answer(400, "Bad Request", msg)
        self.transport.close()

    def _answer(self, status: int, phrase: str, text: str) -> None:
        """Writes an answer of this class, to which the app adds no headers."""
        body = f"{text}\n".encode()
        headers = {
            **SECURITY_HEADERS,
            "content-type": "text/plain; charset=utf-8",
            "content-length": str(len(body)),
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.transport.write("\r\n".join(lines).encode() + body)
