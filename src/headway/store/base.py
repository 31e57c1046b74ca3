"""What the store's parts share: an engine, a clock and two kinds of transaction."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headway.store.engine import WRITE


class Base:
    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now = clock

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[AsyncConnection]:
        async with self._engine.connect() as db:
            yield db

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; committed at the end, rolled back on an exception. No network inside."""
        async with self._engine.connect() as raw:
            db = await raw.execution_options(**{WRITE: True})
            async with db.begin():
                yield db
