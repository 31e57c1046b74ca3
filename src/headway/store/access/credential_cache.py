"""A short-lived cache of the holders of tokens and sessions, shared by the parts of the store that read and change
them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.db.rows import SessionHolder, TokenHolder
from headway.store.db.transactions import Database

_KEPT_S = 1.0
_MAX_ENTRIES = 10_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CachedHolder:
    """A cached holder. `until`: when the entry expires, by the monotonic clock."""

    until: float
    expires_at: float | None
    value: TokenHolder | SessionHolder


def digest(secret: str) -> str:
    """Returns the SHA-256 of a token, cookie or code. They have 256 random bits, so neither salt nor stretching is
    needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


class CredentialCache:
    """Caches the holder of a token or session for one second, because a page that shows a cluster sends about ten
    requests per second. This server clears the cache with every change; another server on the same database sees the
    change within a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._holders: dict[str, CachedHolder] = {}
        self._changes = 0
        self._pending: dict[tuple[str, int], asyncio.Future[Any]] = {}

    @property
    def changes(self) -> int:
        """Returns the number of changes so far; pass it to `put`."""
        return self._changes

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Opens a write transaction that may reduce what a holder is allowed to do, and clears the cache after it."""
        try:
            async with self._database.write() as db:
                yield db
        finally:
            self._changes += 1
            self._holders.clear()

    def get(self, key: str) -> CachedHolder | None:
        """Returns the cached holder; None if it is not cached or the entry has expired."""
        known = self._holders.get(key)
        return None if known is None or time.monotonic() >= known.until else known

    async def query_once(self, key: str, query: Callable[[], Awaitable[T]]) -> T:
        """Runs the query, or waits for the same query if it is already running and nothing has changed since it
        began."""
        mark = (key, self._changes)
        if mark not in self._pending:
            self._pending[mark] = asyncio.ensure_future(query())
            self._pending[mark].add_done_callback(lambda _: self._pending.pop(mark, None))
        found: T = await asyncio.shield(self._pending[mark])
        return found

    def put(self, key: str, value: TokenHolder | SessionHolder, expires_at: float | None, changes: int) -> None:
        """Caches a holder, unless something has changed since `changes` was read."""
        if changes == self._changes:
            if len(self._holders) > _MAX_ENTRIES:
                self._holders.clear()
            self._holders[key] = CachedHolder(time.monotonic() + _KEPT_S, expires_at, value)
