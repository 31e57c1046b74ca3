"""Opening the database: SQLite in a file of mode 600, or PostgreSQL by URL, brought to the newest migration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from headway.errors import Refused, Unreachable
from headway.store.db.schema import HEAD

BUSY_TIMEOUT_MS = 15_000
WRITE = "headway_write"  # execution option: this transaction will write
# A machine that is cut off says no goodbye: PostgreSQL gives its locks to others after these, also when an answer to it was on
# its way (TCP; sockets have no need).
CUT_OFF = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "14000",
}
# No transaction waits for anything but the database: one that says nothing for so long has lost its server, or keeps all others
# from writing.
POOLED: dict[str, Any] = {
    "server_settings": {**CUT_OFF, "idle_in_transaction_session_timeout": "15000"},
    "command_timeout": 60,
}


def database_url(state_dir: Path, url: str = "") -> str:
    """The SQLAlchemy URL: the state folder's SQLite file, or what was given, with its async driver filled in."""
    if not url:
        return f"sqlite+aiosqlite:///{state_dir / 'headway.db'}"
    for plain, driver in (
        ("postgresql://", "postgresql+asyncpg://"),
        ("postgres://", "postgresql+asyncpg://"),
    ):
        if url.startswith(plain):
            return driver + url.removeprefix(plain)
    if url.startswith("sqlite://"):
        return "sqlite+aiosqlite://" + url.removeprefix("sqlite://")
    if url.startswith(("postgresql+asyncpg://", "sqlite+aiosqlite://")):
        return url
    raise Refused(
        f"the database URL starts with {url.partition(':')[0]!r}",
        hint="use postgresql://USER@HOST/DATABASE, or none for SQLite in the state folder",
    )


def shown_url(url: str) -> str:
    """The URL without its password."""
    from sqlalchemy import make_url

    return make_url(url).render_as_string(hide_password=True)


async def open_engine(url: str) -> AsyncEngine:
    """An engine on a database that is at the newest migration. Unreachable when the database does not answer."""
    if url.startswith("sqlite"):
        engine = _sqlite(url)
    else:
        engine = create_async_engine(url, pool_size=5, max_overflow=5, pool_pre_ping=True, connect_args=POOLED)
    try:
        await migrate(engine)
    except (OSError, DBAPIError) as error:
        await engine.dispose()
        raise Unreachable(
            f"the database at {shown_url(url)} can't be used: {_short(error)}",
            hint="check HEADWAY_DATABASE_URL",
        ) from error
    return engine


async def migrate(engine: AsyncEngine) -> None:
    """Alembic's upgrade, skipped (and Alembic not even imported) when the version row is already the newest."""
    async with engine.connect() as connection:
        version = await connection.run_sync(_version)
    if version == HEAD:
        return
    if version and version > HEAD:
        raise Refused(
            f"the database is at migration {version}, newer than this Headway's {HEAD}",
            hint="start the newer Headway that wrote it",
        )
    async with _patient(engine) as patient, patient.connect() as connection:
        connection = await connection.execution_options(**{WRITE: True})
        async with connection.begin():
            if engine.dialect.name == "postgresql":  # two servers that start at once; SQLite's write lock does the same
                await connection.execute(text("SELECT pg_advisory_xact_lock(7240178)"))
            await connection.run_sync(_upgrade)


@contextlib.asynccontextmanager
async def _patient(engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    """Without the pool's limits: a large table's migration takes as long as it takes, and so does another server's."""
    if engine.dialect.name != "postgresql":
        yield engine
        return
    patient = create_async_engine(engine.url, poolclass=NullPool, connect_args={"server_settings": CUT_OFF})
    try:
        yield patient
    finally:
        await patient.dispose()


def _version(connection: Connection) -> str:
    """The migration the database is at; "" for an empty one."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table("alembic_version"):
        return ""
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return str(row[0]) if row else ""


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _sqlite(url: str) -> AsyncEngine:
    path = url.partition(":///")[2]
    if path and path != ":memory:":
        file = Path(path)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made here, with its mode, before SQLite can make it with the umask's.
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        file.chmod(0o600)
    engine = create_async_engine(url, pool_size=4, max_overflow=8)

    @event.listens_for(engine.sync_engine, "connect")
    def _on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # we say BEGIN ourselves, below
        cursor = dbapi.cursor()
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _on_begin(connection: Connection) -> None:
        # A writer takes the lock at once: a read that turns into a write may fail with "database is locked".
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _short(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0][:300]
