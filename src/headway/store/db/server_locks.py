"""Coordination of several servers on one database: which servers are alive, which one leads, and named locks that only
one server holds at a time.

All three are advisory locks of one PostgreSQL session. PostgreSQL releases them as soon as that connection ends, so a
killed server is replaced at once, and clocks do not matter. One connection holds all of them, so they are lost
together. A SQLite file has only one server, because of the lock on its state folder: that server leads and gets every
lock."""

from __future__ import annotations

import asyncio
import contextlib
import secrets as random
import zlib
from collections.abc import AsyncIterator

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from headway.store.db.engine import CUT_OFF
from headway.store.db.errors import StoreUnavailable

LIFE, LEAD, NAMED = 7240179, 7240180, 7240181  # the first half of each lock's key
ANSWER_S = 2.5  # seconds; a database that takes longer to answer this check counts as unreachable
WAIT_S = 0.05

_TAKE = "SELECT pg_try_advisory_lock(:kind, :one)"
_GIVE = "SELECT pg_advisory_unlock(:kind, :one)"
_HELD = """SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = :kind AND objid = :one
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class ServerLocks:
    """The locks of this server on the database. `number` is different from that of every other server, past or
    present; `leads` is set by the code that elects the leader."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.number = 1 + random.randbelow(2**31 - 1)
        self.shared = engine.dialect.name == "postgresql"
        self.leads = not self.shared
        self._url = engine.url
        self._db: AsyncConnection | None = None
        self._one = asyncio.Lock()  # allows one query at a time on the connection
        self._ends: set[asyncio.Future[None]] = set()

    async def register(self) -> None:
        """Makes this server visible to others as alive. Raises StoreUnavailable if the database does not answer."""
        if not self.shared or self._db is not None:
            return
        settings = {"server_settings": {**CUT_OFF, "application_name": "headway"}}
        engine = create_async_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=settings)
        try:
            async with asyncio.timeout(10):
                self._db = await engine.connect()
            await self._query(_TAKE, LIFE, self.number)
        except (OSError, TimeoutError, SQLAlchemyError) as error:
            raise StoreUnavailable(f"the database does not answer: {error}", hint="HEADWAY_DATABASE_URL") from None

    async def is_registered(self) -> bool:
        """Returns whether others still see this server as alive. If not, other servers may take all its locks."""
        if not self.shared:
            return True
        try:
            if await self._query(_HELD, LIFE, self.number):
                return True
        except StoreUnavailable:
            return False
        async with self._one:  # the answer came from a new session, which holds no locks
            await self._drop()
        return False

    async def try_to_lead(self) -> bool:
        """Takes the lead; returns False if another server has it."""
        return not self.shared or bool(await self._query(_TAKE, LEAD, 0))

    async def is_alive(self, number: int) -> bool:
        """Returns whether the server with that number is running now."""
        if number == self.number:
            return True
        if not self.shared or not number:
            return False
        return bool(await self._query(_HELD, LIFE, number))

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Waits until no other server holds the lock of this name, and holds it. Within one server the caller must
        exclude concurrent holders itself."""
        if not self.shared:
            yield
            return
        lock = _lock_of(name)
        while True:
            if await self._try_lock(lock):
                break
            await asyncio.sleep(WAIT_S)
        try:
            yield
        finally:
            await self._release_lock(lock)

    async def is_locked(self, name: str) -> bool:
        """Returns whether any server holds the lock of this name. Always False on SQLite, where the only server knows
        it anyway."""
        return self.shared and bool(await self._query(_HELD, NAMED, _lock_of(name) % 2**32))

    async def _try_lock(self, lock: int) -> bool:
        asking = asyncio.ensure_future(self._query(_TAKE, NAMED, lock))
        try:
            return bool(await asyncio.shield(asking))
        except asyncio.CancelledError:  # the lock may have been granted in the meantime
            given_up = asyncio.ensure_future(self._abandon_lock(asking, lock))
            self._ends.add(given_up)
            given_up.add_done_callback(self._ends.discard)
            raise

    async def _abandon_lock(self, asking: asyncio.Future[object], lock: int) -> None:
        with contextlib.suppress(StoreUnavailable):
            if await asking:
                await self._release_lock(lock)

    async def _release_lock(self, lock: int) -> None:
        with contextlib.suppress(StoreUnavailable):  # the database releases the lock when the connection is lost
            await self._query(_GIVE, NAMED, lock)

    async def close(self) -> None:
        """Closes the connection, which releases all locks."""
        self.leads = not self.shared
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(OSError, TimeoutError, SQLAlchemyError):
                async with asyncio.timeout(ANSWER_S):
                    await db.close()
            await db.engine.dispose()

    async def _query(self, query: str, kind: int, lock: int) -> object:
        """Returns the result of a lock query. Raises StoreUnavailable, and drops the connection with all locks, if there is
        no answer in time. A cancelled caller does not cancel the query, because that would cost the connection."""
        return await asyncio.shield(asyncio.ensure_future(self._answer(query, kind, lock)))

    async def _answer(self, query: str, kind: int, lock: int) -> object:
        async with self._one:
            if self._db is None:
                raise StoreUnavailable("the database does not answer", hint="headway server logs")
            try:
                async with asyncio.timeout(ANSWER_S):
                    return (await self._db.execute(text(query), {"kind": kind, "one": lock})).scalar()
            except (OSError, TimeoutError, SQLAlchemyError) as error:
                await self._drop()
                raise StoreUnavailable(
                    f"the database does not answer: {str(error).splitlines()[0] if str(error) else 'in time'}",
                    hint="headway server logs",
                ) from None

    async def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(OSError, TimeoutError, SQLAlchemyError):
                await db.invalidate()
                await db.close()


def _lock_of(name: str) -> int:
    """Returns the number of the lock, which PostgreSQL takes as a signed integer and lists as an unsigned one."""
    return zlib.crc32(name.encode()) - 2**31
