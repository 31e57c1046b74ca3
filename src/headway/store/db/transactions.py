"""Shared by the parts of the store: the database with its transactions, and the errors of a database that does not
answer."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Table, any_, bindparam, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headway.store.db.engine import WRITE
from headway.store.db.errors import CommitUnknown, DatabaseLocked, StoreUnavailable
from headway.store.db.server_locks import ServerLocks

WRITER = 7240182
# Error texts of SQLite for disk problems, and SQLSTATE classes of PostgreSQL: connection errors, out of resources, and
# a shutdown or start of the database.
_DISK = ("disk I/O error", "database or disk is full", "unable to open database file")
_STATES = ("08", "53", "57P")
AWAY_HINT = "check that it runs and has free disk space; operations continue when it is back"
SLOW_HINT = "try again in a minute; if it happens again, check pg_stat_activity for long queries"


class Database:
    """An engine, a clock, the advisory locks of this server, and the two kinds of transaction."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self.engine = engine
        self.now = clock
        self.server_locks = ServerLocks(engine)

    @property
    def dialect(self) -> str:
        """Returns `sqlite` or `postgresql`."""
        return self.engine.dialect.name

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Opens a connection for queries. Raises StoreUnavailable if the database does not answer."""
        with database_errors():
            async with self.engine.connect() as db:
                yield db

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction that may write; it is committed at the end and rolled back on an exception. Do no
        network I/O inside.

        Only one write transaction runs at a time among all servers on the database (SQLite's write lock; an advisory
        lock on PostgreSQL), so what is read inside is still true when it is written."""
        with database_errors():
            async with self.engine.connect() as raw:
                db = await raw.execution_options(**{WRITE: True})
                async with db.begin():
                    if self.server_locks.shared:
                        await db.execute(text(f"SELECT pg_advisory_xact_lock({WRITER})"))
                    yield db

    def is_one_of(self, column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
        """Returns the condition that the column has one of these values, which are one parameter of the query.

        With a parameter for each value, as of `in_`, the query has another text for every number of values, and each
        connection keeps the last hundred texts prepared: with hundreds of values 100 KiB each."""
        if self.dialect == "postgresql":
            return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
        listed = func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(select(listed.c.value))

    async def close(self) -> None:
        """Closes all connections."""
        await self.server_locks.close()
        await self.engine.dispose()


class StorePart:
    """Base class of the parts of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database


@contextmanager
def database_errors() -> Iterator[None]:
    """Raises StoreUnavailable for driver errors that mean that the database cannot be reached."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreUnavailable("all connections to the server's database are taken", hint=SLOW_HINT) from error
    except TimeoutError as error:
        raise CommitUnknown("the server's database did not answer in time", hint=SLOW_HINT) from error
    except OSError as error:  # from PostgreSQL, before there is a connection
        raise StoreUnavailable(
            f"the server's database can't be reached: {error.strerror or error}", hint=AWAY_HINT
        ) from error
    except DBAPIError as error:
        message = str(error.orig).strip().partition("\n")[0]
        if "database is locked" not in message:
            if _away(error, message):
                raise StoreUnavailable(
                    f"the server's database does not answer: {message[:200]}", hint=AWAY_HINT
                ) from error
            raise
        raise DatabaseLocked(
            "the server's database is locked by another program, so nothing can be written",
            hint="a backup or an sqlite3 shell may hold headway.db in the server's state folder; try again when it has ended",
        ) from error


def _away(error: DBAPIError, message: str) -> bool:
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or state.startswith(_STATES) or message.startswith(_DISK)


def insert_into(db: AsyncConnection, table: Table) -> Any:
    """Returns an INSERT of the present dialect, which supports ON CONFLICT."""
    return (postgresql if db.dialect.name == "postgresql" else sqlite).insert(table)
