"""What the store's parts share: an engine, a clock and two kinds of transaction."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headway.errors import Unanswered, Unreachable
from headway.store.engine import WRITE
from headway.store.presence import Presence

WRITER = 7240182
SLOW_HINT = "try again in a minute; if it stays so, see what keeps the database busy (pg_stat_activity)"


class Locked(Unreachable):
    """Another program holds the database's lock for longer than anybody waits."""


class Base:
    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now = clock
        self.presence = Presence(engine)

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[AsyncConnection]:
        with _said_where_away():
            async with self._engine.connect() as db:
                yield db

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; committed at the end, rolled back on an exception. No network inside. One at a time, of
        all servers on the database: SQLite's lock says so, and PostgreSQL is asked for one, so that what is read here holds
        until it is written."""
        with _said_where_away():
            async with self._engine.connect() as raw:
                db = await raw.execution_options(**{WRITE: True})
                async with db.begin():
                    if self.presence.shared:
                        await db.execute(text(f"SELECT pg_advisory_xact_lock({WRITER})"))
                    yield db


@contextmanager
def _said_where_away() -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        raise Unreachable("all connections to the server's database are taken", hint=SLOW_HINT) from error
    except TimeoutError as error:
        raise Unanswered("the server's database did not answer in time", hint=SLOW_HINT) from error
    except OperationalError as error:
        if "database is locked" not in str(error.orig):
            raise
        raise Locked(
            "the server's database is locked by another program, so nothing can be written",
            hint="a backup or a shell of sqlite3 may hold headway.db in the server's state folder; try again once it is done",
        ) from error
