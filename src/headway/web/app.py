"""Adds the dashboard to the server's app: pages, static files, documentation."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headway.api.auth.dependencies import authenticate
from headway.errors import HeadwayError, NotFound
from headway.schemas.base import API_PREFIX
from headway.web import documentation
from headway.web.pages import PAGES
from headway.web.rendering import Documentation, render, static_files


def mount(app: FastAPI) -> None:
    """Adds the dashboard to `app`. Raises Refused if the browser libraries are missing."""
    app.mount("/static", static_files(), name="static")
    if documentation.site_is_built():
        app.mount("/docs", Documentation(directory=documentation.SITE, html=True), name="docs")
    for page in PAGES:
        app.router.routes.extend(page.router.routes)  # as in create_app, for the same reason
    _show_unknown_addresses(app)


def _show_unknown_addresses(app: FastAPI) -> None:
    """Answers a browser that asks for an address that does not exist with a page. Programs and the API get what they got."""
    other = cast("Callable[[Request, Any], Awaitable[Response]] | None", app.exception_handlers.get(HTTPException))
    if other is None:
        return

    async def on_http(request: Request, error: Any) -> Response:
        browses = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if error.status_code != 404 or not browses or request.url.path.startswith((API_PREFIX, "/static/")):
            return await other(request, error)
        viewer = None
        with contextlib.suppress(HeadwayError):
            viewer = await authenticate(request)
        unknown = NotFound("This address does not exist", hint=request.url.path[:200])
        return render("error.html", status=404, viewer=viewer, error=unknown)

    app.add_exception_handler(HTTPException, on_http)
