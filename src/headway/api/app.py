"""The FastAPI app: routers, error handlers, and the headers and limits that apply to every request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, HTTPException, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway import __version__
from headway.api import docs_page
from headway.api.auth.dependencies import app_state, authenticate
from headway.api.http import error_handlers
from headway.api.http.compression import CompressResponses
from headway.api.http.idempotency import IdempotentPosts
from headway.api.http.security_headers import HSTS, SECURITY_HEADERS
from headway.api.routers.access import audit, linux_users, people, server, sessions, team_usage, tokens
from headway.api.routers.billing import (
    budgets,
    checkpoints,
    cost_estimate,
    energy_capacity,
    goodput,
    invoices,
    node_states,
    usage,
)
from headway.api.routers.cluster import (
    activity,
    backups,
    clusters,
    datasets,
    environments,
    event_stream,
    fabric_tests,
    incidents,
    key_rotation,
    metrics,
    nodes,
    operations,
    rollouts,
    storage,
)
from headway.api.routers.jobs import exec_commands, jobs, logs, notebooks, pipelines, secrets, submissions
from headway.errors import HeadwayError, NotSignedIn
from headway.schemas.base import API_PREFIX, PROBLEM_JSON, ErrorOut, Problem
from headway.services.access.concurrency_limits import large_request_slot
from headway.services.app_state import AppState
from headway.services.jobs.bundles import MAX_ARCHIVE
from headway.services.memory import release_memory_soon

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


def create_app(state: AppState) -> FastAPI:
    """Returns the API app for this state. The composition root mounts the dashboard on top of it."""
    app = Api(
        title="Headway",
        version=__version__,
        description="Clusters, jobs and people of one Headway server.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
        responses={code: {"model": Problem} for code in (400, 401, 403, 404, 409, 422, 429, 502, 503)},
    )
    app.state.headway = state
    api = APIRouter(prefix=API_PREFIX)
    routers = (
        jobs,  # routes are tried in this order, so the most frequent come first
        clusters,
        operations,
        event_stream,
        activity,
        incidents,
        nodes,
        backups,
        key_rotation,
        storage,
        fabric_tests,
        datasets,
        environments,
        rollouts,
        metrics,
        logs,
        notebooks,
        submissions,
        pipelines,
        secrets,
        exec_commands,
        usage,
        invoices,
        budgets,
        cost_estimate,
        goodput,
        energy_capacity,
        node_states,
        checkpoints,
        server,
        people,
        tokens,
        sessions,
        team_usage,
        linux_users,
        audit,
        docs_page,
    )
    for router in (module.router for module in routers):
        api.include_router(router)
    app.include_router(api)
    headers = security_headers(state.settings.url, own_certificate=bool(state.settings.fingerprint))
    error_handlers.install_error_handlers(app, headers)
    app.add_middleware(IdempotentPosts)
    app.add_middleware(CompressResponses)
    app.add_middleware(RequestGuard, hosts=state.settings.allowed_hosts, headers=headers)
    return app


def security_headers(url: str, *, own_certificate: bool = False) -> dict[str, str]:
    """Returns the headers of every response. HSTS is set only if the server has the host's usual HTTPS port: it applies
    to all ports of the host, and another service on the host may use plain HTTP. It is not set for a certificate that
    the server made for itself, because browsers with HSTS let no person accept one."""
    parts = urlsplit(url)
    ours = parts.scheme == "https" and parts.port in (None, 443) and not own_certificate
    return {**SECURITY_HEADERS, HSTS: "max-age=31536000"} if ours else SECURITY_HEADERS


class Api(FastAPI):
    """FastAPI app whose OpenAPI document declares failures as problem documents (RFC 9457)."""

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document with the media type application/problem+json for all failures."""
        if self.openapi_schema is None:
            for methods in super().openapi()["paths"].values():
                for code, answer in (
                    (c, a) for operation in methods.values() for c, a in operation["responses"].items()
                ):
                    if code >= "400":
                        answer["content"] = {PROBLEM_JSON: next(iter(answer["content"].values()))}
        return super().openapi()


class RequestGuard:
    """ASGI middleware. Refuses requests for host names that are not the server's (DNS rebinding), too large or too slow
    bodies, and NUL bytes in addresses and forms. Sets the security headers on every response."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], headers: Mapping[str, str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._headers = dict(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        nul = _NUL_IN.get(headers.get("content-type", "").partition(";")[0].strip().lower())
        most = MAX_ARCHIVE if _BUNDLE.fullmatch(scope["path"]) else MAX_BODY
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
            plain = PlainTextResponse(error.message, status)
            page = not scope["path"].startswith(API_PREFIX)
            await (plain if page else error_handlers.problem_response(status, error))(scope, receive, send_with_headers)
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


async def _begin_large_request(scope: Scope, slots: contextlib.AsyncExitStack) -> None:
    """Raises HTTPException unless a person sends the request: endpoints check that too, but FastAPI reads and parses the
    whole body before. Parsing keeps the server from other work, so a person's large JSON requests are taken one after
    the other; TooManyAtOnce is raised if too many wait."""
    request = Request(scope)
    try:
        who = await authenticate(request)
        if who is None:
            raise NotSignedIn("sign in before sending a large body")
        if request.headers.get("content-type", "").startswith("application/json"):
            state = app_state(request)
            slots.enter_context(large_request_slot(state, who))
            await slots.enter_async_context(state.large_request_locks.setdefault(who.person, asyncio.Lock()))
    except HeadwayError as error:
        raise HTTPException(error.http_status, error.message, {"connection": "close"}) from None


_TOO_SLOW = "the body of the request arrives too slowly"


def _too_large(most: int) -> str:
    return f"the request is larger than {most // 2**20} MiB"
