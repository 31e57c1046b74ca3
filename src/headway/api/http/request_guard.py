"""Limits on each request before it reaches an endpoint: size and speed of its body, host names, NUL bytes. Limits on the
headers of a request are in `server.request_head_limits`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping

from fastapi import HTTPException, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.api.auth.dependencies import app_state, authenticate
from headway.api.http import error_handlers
from headway.api.http.refusal_log import RefusalLog
from headway.domain.jobs.bundle_limits import MAX_ARCHIVE
from headway.errors import HeadwayError, NotSignedIn
from headway.schemas.access.scim import SCIM_JSON, SCIM_PREFIX
from headway.schemas.base import API_PREFIX, ErrorOut
from headway.services.access.concurrency_limits import large_request_slot
from headway.services.memory_release import release_memory_soon

MAX_SCIM_BODY = 2 * 1024 * 1024  # bytes; a group of MOST_MEMBERS is smaller
MAX_BODY = 8 * 1024 * 1024  # bytes; a cluster file with 20,000 machines is smaller
LARGE_BODY = 256 * 1024  # bytes; a larger one is read only from a person, and memory is given back after it
_MOST_DIGITS = 15
# A body may keep a request waiting for BODY_S seconds in all, and a second more for each BODY_BYTES_PER_S that arrived.
BODY_S = 30.0
BODY_BYTES_PER_S = 4096
# NUL bytes in addresses and forms are refused: no text of Headway contains them, and databases do not accept them.
_IN_WORDS = re.compile(rb"\0|%00")
_NUL_IN = {"application/x-www-form-urlencoded": _IN_WORDS, "multipart/form-data": re.compile(rb"\0")}
_NUL = "the request contains a NUL byte"
_BUNDLE = re.compile(rf"{API_PREFIX}/clusters/[^/]+/bundles/[0-9a-f]{{64}}")  # has a limit of its own


class RequestGuard:
    """ASGI middleware. Refuses requests for host names that are not the server's (DNS rebinding), too large or too slow
    bodies, and NUL bytes in addresses and forms. Sets the security headers on every response, and logs refusals."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], headers: Mapping[str, str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._headers = dict(headers)
        self._refusals = RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._refusals.note(scope, message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        nul = _NUL_IN.get(headers.get("content-type", "").partition(";")[0].strip().lower())
        most = _largest_body(scope["path"])
        received, waited, more, end = 0, 0.0, True, b""
        slots = contextlib.AsyncExitStack()

        async def receive_bounded() -> Message:
            """Receives a piece of the body and enforces the limits of size, also for bodies without a Content-Length,
            and of time."""
            nonlocal received, waited, more, end
            if not more:
                return await receive()  # waits for the client to disconnect
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, BODY_S + received / BODY_BYTES_PER_S - waited)):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, _TOO_SLOW, {"connection": "close"}) from None
            waited += time.monotonic() - began
            more = message.get("more_body", False)
            piece = message.get("body", b"")
            if received <= LARGE_BODY < received + len(piece):
                await _begin_large_request(scope, slots)
            received += len(piece)
            if received > most:
                raise HTTPException(413, _too_large(most), {"connection": "close"})
            if nul and nul.search(end + piece):
                raise HTTPException(422, _NUL)
            end = (end + piece)[-2:]
            return message

        refusal = self._refusal(headers, most)
        if refusal is None and ("\0" in scope["path"] or _IN_WORDS.search(scope.get("query_string", b""))):
            refusal = 400, ErrorOut(kind="refused", message=_NUL)
        if refusal is not None:
            status, error = refusal
            await _refusal_response(scope["path"], status, error)(scope, receive, send_with_headers)
            return
        async with slots:
            await self._app(scope, receive_bounded, send_with_headers)
        if received > LARGE_BODY:
            release_memory_soon()

    def _refusal(self, headers: Headers, most: int) -> tuple[int, ErrorOut] | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._hosts and name.lower() not in self._hosts:
            message = "this server has no such host name"
            return 400, ErrorOut(kind="refused", message=message, hint="use its address")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return 400, ErrorOut(kind="refused", message="the request's length is not a number")
        if len(length) > _MOST_DIGITS or int(length) > most:
            return 413, ErrorOut(kind="refused", message=_too_large(most))
        return None


def _largest_body(path: str) -> int:
    """Returns how many bytes the body of a request may have."""
    if _BUNDLE.fullmatch(path):
        return MAX_ARCHIVE
    return MAX_SCIM_BODY if path.startswith(f"{SCIM_PREFIX}/") else MAX_BODY


def _refusal_response(path: str, status: int, error: ErrorOut) -> Response:
    if path.startswith(f"{SCIM_PREFIX}/"):
        return error_handlers.scim_response(status, error)
    if path.startswith(API_PREFIX):
        return error_handlers.problem_response(status, error)
    return PlainTextResponse(error.message, status)


async def _begin_large_request(scope: Scope, slots: contextlib.AsyncExitStack) -> None:
    """Raises HTTPException unless a person sends the request: endpoints check that too, but FastAPI reads and parses the
    whole body before. Parsing keeps the server from other work, so a person's large JSON requests are taken one after
    the other; TooManyAtOnce is raised if too many wait."""
    request = Request(scope)
    try:
        who = await authenticate(request)
        if who is None:
            raise NotSignedIn("sign in before sending a large body")
        if request.headers.get("content-type", "").startswith(("application/json", SCIM_JSON)):
            state = app_state(request)
            slots.enter_context(large_request_slot(state, who))
            await slots.enter_async_context(state.large_request_locks.setdefault(who.person, asyncio.Lock()))
    except HeadwayError as error:
        wait = {"retry-after": str(error.retry_after_s)} if error.retry_after_s else {}
        raise HTTPException(error.http_status, error.message, {"connection": "close", **wait}) from error


_TOO_SLOW = "the body of the request arrives too slowly"


def _too_large(most: int) -> str:
    return f"the request is larger than {most // 2**20} MiB"
