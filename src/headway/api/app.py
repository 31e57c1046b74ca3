"""The FastAPI app: routers, errors, and what every answer carries."""

from __future__ import annotations

import re

from fastapi import APIRouter, FastAPI, HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway import __version__
from headway.api import clusters, commands, docs, errors, jobs, people, pipelines, runs
from headway.api.state import AppState
from headway.wire.schemas import API_PREFIX, ErrorOut

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",  # unless an answer says otherwise
}
MAX_BODY = 16 * 1024 * 1024  # bytes; a script and its document are far below
_BUNDLE = re.compile(rf"{API_PREFIX}/clusters/[^/]+/bundles/[0-9a-f]{{64}}")  # has a limit of its own


def create_app(state: AppState) -> FastAPI:
    """The API on this state. The dashboard is mounted on top by the composition root."""
    app = FastAPI(
        title="Headway",
        version=__version__,
        description="Clusters, jobs and people of one Headway server.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
        responses={code: {"model": ErrorOut} for code in (400, 401, 403, 404, 409, 422, 502, 503)},
    )
    app.state.headway = state
    api = APIRouter(prefix=API_PREFIX)
    routers = (clusters, jobs, runs, pipelines, commands, people, docs)
    for router in (module.router for module in routers):
        api.include_router(router)
    app.include_router(api)
    app.include_router(people.pages)
    errors.install(app, SECURITY_HEADERS)
    app.add_middleware(Guard, hosts=state.settings.allowed_hosts)
    return app


class Guard:
    """Refuses requests for other host names (a page elsewhere that points its name at us) and bodies without end; puts
    the security headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        most = runs.MAX_ARCHIVE if _BUNDLE.fullmatch(scope["path"]) else MAX_BODY
        received = 0

        async def receive_bounded() -> Message:
            """A body may come in pieces, without its length said before."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, _too_large(most), {"connection": "close"})
            return message

        refusal = self._refusal(Headers(scope=scope), most)
        if refusal is not None:
            await errors.answer(400, refusal)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive_bounded, send_with_headers)

    def _refusal(self, headers: Headers, most: int) -> ErrorOut | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._hosts and name not in self._hosts:
            return ErrorOut(kind="refused", message="this server does not go by that name", hint="use its address")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            return ErrorOut(kind="refused", message=_too_large(most))
        return None


def _too_large(most: int) -> str:
    return f"the request is larger than {most // 2**20} MiB"
