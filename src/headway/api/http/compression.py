"""Compresses responses for clients that accept gzip. Streams are not compressed."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

MIN_BYTES = 1000  # bytes; compressing smaller responses saves almost nothing
LEVEL = 5
_PLAIN = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")  # logs and command output


class CompressResponses:
    """ASGI middleware that compresses responses with gzip."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL, exclude_content_types=_PLAIN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not accepts_gzip(Headers(scope=scope).get("accept-encoding", "")):
            # Starlette only looks for the word, so it would compress even with "gzip;q=0".
            kept = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
            scope = {**scope, "headers": kept}
        await self._app(scope, receive, send)


def accepts_gzip(header: str) -> bool:
    """Returns whether an Accept-Encoding header accepts gzip."""
    words = [word.strip().partition(";") for word in header.lower().split(",")]
    return any(name == "gzip" and more.replace(" ", "") not in ("q=0", "q=0.0") for name, _, more in words)
