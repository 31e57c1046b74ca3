"""Compresses answers for clients that accept gzip. Streams are not compressed."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

MIN_BYTES = 1000  # bytes; below it a packed answer is hardly shorter
LEVEL = 5
_PLAIN = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")  # logs, commands' output


class CompressResponses:
    def __init__(self, app: ASGIApp) -> None:
        self._app = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL, exclude_content_types=_PLAIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            # Starlette goes by the word alone, so "gzip;q=0" would do.
            kept = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
            scope = {**scope, "headers": kept}
        await self._app(scope, receive, send)


def accepts_gzip(header: str) -> bool:
    words = [word.strip().partition(";") for word in header.lower().split(",")]
    return any(name == "gzip" and more.replace(" ", "") not in ("q=0", "q=0.0") for name, _, more in words)
