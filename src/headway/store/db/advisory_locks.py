"""Servers on one database: that each lives, which of them leads, and turns that one of them has at a time.

All three are advisory locks of one session of PostgreSQL's. They are gone the moment that connection is: a server that was
killed is followed at once, and nobody's clock matters. As one connection holds them all, they are lost together. A SQLite
file has one server, by the lock of its state folder: there it leads, and every turn is its own."""

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

from headway.errors import Unreachable
from headway.store.db.engine import CUT_OFF

LIFE, LEAD, TURN = 7240179, 7240180, 7240181  # the first half of each lock's name
ANSWER_S = 2.5  # a database that takes longer to say that it is there counts as gone
WAIT_S = 0.05

_TAKE = "SELECT pg_try_advisory_lock(:kind, :one)"
_GIVE = "SELECT pg_advisory_unlock(:kind, :one)"
_HELD = """SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = :kind AND objid = :one
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


class Presence:
    """One server's. `number` tells it from every other server that ever was; `leads` is for whoever leads to set."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.number = 1 + random.randbelow(2**31 - 1)
        self.shared = engine.dialect.name == "postgresql"
        self.leads = not self.shared
        self._url = engine.url
        self._db: AsyncConnection | None = None
        self._one = asyncio.Lock()  # question at a time
        self._ends: set[asyncio.Future[None]] = set()

    async def appear(self) -> None:
        """From now on others see that this server lives. Raises Unreachable when the database does not answer."""
        if not self.shared or self._db is not None:
            return
        settings = {"server_settings": {**CUT_OFF, "application_name": "headway"}}
        engine = create_async_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=settings)
        try:
            async with asyncio.timeout(10):
                self._db = await engine.connect()
            await self._ask(_TAKE, LIFE, self.number)
        except (OSError, TimeoutError, SQLAlchemyError) as error:
            raise Unreachable(f"the database does not answer: {error}", hint="HEADWAY_DATABASE_URL") from None

    async def still(self) -> bool:
        """Whether this server is still seen; when it is not, every lock of its is somebody else's to take."""
        if not self.shared:
            return True
        try:
            if await self._ask(_HELD, LIFE, self.number):
                return True
        except Unreachable:
            return False
        async with self._one:  # this is another session, which holds nothing
            await self._drop()
        return False

    async def take_lead(self) -> bool:
        """Whether no other server has it."""
        return not self.shared or bool(await self._ask(_TAKE, LEAD, 0))

    async def lives(self, number: int) -> bool:
        """Whether the server of that number runs now."""
        if number == self.number:
            return True
        if not self.shared or not number:
            return False
        return bool(await self._ask(_HELD, LIFE, number))

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """No other server is in the turn of this name meanwhile. Inside one server somebody else has to see to it."""
        if not self.shared:
            yield
            return
        lock = _lock_of(name)
        while True:
            if await self._taken(lock):
                break
            await asyncio.sleep(WAIT_S)
        try:
            yield
        finally:
            await self._give_back(lock)

    async def in_turn(self, name: str) -> bool:
        """Whether a server is in the turn of this name; of a SQLite file its one server would know."""
        return self.shared and bool(await self._ask(_HELD, TURN, _lock_of(name) % 2**32))

    async def _taken(self, lock: int) -> bool:
        asking = asyncio.ensure_future(self._ask(_TAKE, TURN, lock))
        try:
            return bool(await asyncio.shield(asking))
        except asyncio.CancelledError:  # it may be ours by now
            given_up = asyncio.ensure_future(self._give_up(asking, lock))
            self._ends.add(given_up)
            given_up.add_done_callback(self._ends.discard)
            raise

    async def _give_up(self, asking: asyncio.Future[object], lock: int) -> None:
        with contextlib.suppress(Unreachable):
            if await asking:
                await self._give_back(lock)

    async def _give_back(self, lock: int) -> None:
        with contextlib.suppress(Unreachable):  # with its connection the lock is gone as well
            await self._ask(_GIVE, TURN, lock)

    async def close(self) -> None:
        self.leads = not self.shared
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(OSError, TimeoutError, SQLAlchemyError):
                async with asyncio.timeout(ANSWER_S):
                    await db.close()
            await db.engine.dispose()

    async def _ask(self, query: str, kind: int, one: int) -> object:
        """Raises Unreachable, and lets go of everything, when the answer does not come. Who no longer wants the answer does not
        break it off: that would cost the connection."""
        return await asyncio.shield(asyncio.ensure_future(self._answer(query, kind, one)))

    async def _answer(self, query: str, kind: int, one: int) -> object:
        async with self._one:
            if self._db is None:
                raise Unreachable("the database does not answer", hint="headway server logs")
            try:
                async with asyncio.timeout(ANSWER_S):
                    return (await self._db.execute(text(query), {"kind": kind, "one": one})).scalar()
            except (OSError, TimeoutError, SQLAlchemyError) as error:
                await self._drop()
                raise Unreachable(
                    f"the database does not answer: {str(error).splitlines()[0] if str(error) else 'in time'}",
                    hint="headway server logs",
                ) from None

    async def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(OSError, TimeoutError, SQLAlchemyError):
                await db.invalidate()
                await db.close()


def _lock_of(turn: str) -> int:
    """Its number, which PostgreSQL takes with a sign and lists without."""
    return zlib.crc32(turn.encode()) - 2**31
