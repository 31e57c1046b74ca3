"""A request whose answer goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.api.api_routes import scope_of
from tests.support.servers.server_fakes import Server


async def streamed(
    server: Server, path: str, token: str, begun: asyncio.Event, method: str = "GET", body: bytes = b""
) -> tuple[int, bytes]:
    """(status, all that came) until the server ends the answer."""
    status, content, asked = 0, b"", False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")
        begun.set()

    async with asyncio.timeout(60):
        await server.app(scope_of(method, path, token, body), receive, send)
    return status, content
