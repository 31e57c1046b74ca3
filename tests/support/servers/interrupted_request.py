"""A request whose server is killed before it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from tests.support.servers.server_fakes import Server

KEY = {"idempotency-key": "4f1c"}


async def cut_off(server: Server, client: Any, path: str, **body: Any) -> None:
    """Posts the request with KEY and leaves the store as a server does that was killed in the middle of it."""
    begin, end = server.store.idempotency_keys.begin, server.store.idempotency_keys.finish

    async def elsewhere(name: str, request: str) -> Any:
        found = await begin(name, request)
        async with server.store.database.write() as db:
            await db.execute(text("UPDATE answers SET server = 1 WHERE status = 0"))
        return found

    async def never(*_: Any) -> None:
        raise asyncio.CancelledError

    server.store.idempotency_keys.begin, server.store.idempotency_keys.finish = elsewhere, never  # type: ignore[method-assign]
    server.store.idempotency_keys.delete, drop = never, server.store.idempotency_keys.delete  # type: ignore[method-assign,assignment]
    with pytest.raises(asyncio.CancelledError):
        await client.post(path, json=body, headers=KEY)
    server.store.idempotency_keys.begin, server.store.idempotency_keys.finish, server.store.idempotency_keys.delete = (
        begin,
        end,
        drop,
    )  # type: ignore[method-assign]
