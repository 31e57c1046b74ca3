"""Opens the database: SQLite in a file of mode 600, or PostgreSQL by URL, and migrates it to the newest version."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, event, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

# Each adds its tables to the metadata.
import headway.store.db.access_schema
import headway.store.db.billing_schema
import headway.store.db.cluster_schema
import headway.store.db.model_schema
import headway.store.db.service_schema  # noqa: F401
from headway.errors import Refused
from headway.store.db.errors import StoreUnavailable
from headway.store.db.metadata import HEAD, metadata
from headway.store.db.postgres_tls import TlsArgument, tls_argument, without_tls_options

BUSY_TIMEOUT_MS = 15_000
WRITE = "headway_write"  # execution option: this transaction will write
# A machine that loses its network does not close its connections. With these settings PostgreSQL notices it and
# releases its locks, even if an answer to it was in transit. They apply to TCP; Unix sockets do not need them.
CUT_OFF = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "14000",
}
# Transactions wait for nothing but the database. One that is idle for this long belongs to a lost server, or blocks
# all other writers.
POOLED: dict[str, Any] = {
    "server_settings": {**CUT_OFF, "idle_in_transaction_session_timeout": "15000"},
    "command_timeout": 60,
}
_COLUMNS = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
_COLUMNS_SQLITE = (
    "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table'"
)
_versions = Table(  # as Alembic makes it
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

TLS_HINT = (
    "the certificate of a PostgreSQL on another machine is verified: add sslrootcert=FILE to HEADWAY_DATABASE_URL with the "
    "certificate of its authority, or sslmode=disable in a network that you trust"
)


def database_url(state_dir: Path, url: str = "") -> str:
    """Returns the SQLAlchemy URL with its async driver: of `url` if given, else of the SQLite file in the state
    folder. Raises Refused for other databases."""
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
    """Returns the URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


async def open_engine(url: str) -> AsyncEngine:
    """Returns an engine on a database that is at the newest migration. Raises StoreUnavailable if the database does not
    answer."""
    tls: TlsArgument = {}
    if url.startswith("sqlite"):
        engine = _sqlite(url)
    else:
        parsed = make_url(url)
        tls = tls_argument(parsed)
        engine = create_async_engine(
            without_tls_options(parsed), pool_size=5, max_overflow=5, pool_pre_ping=True, connect_args=POOLED | tls
        )
    try:
        await migrate(engine, tls)
    except (OSError, DBAPIError) as error:
        await engine.dispose()
        raise StoreUnavailable(
            f"the database at {shown_url(url)} can't be used: {_short(error)}",
            hint=TLS_HINT if tls and "SSL" in str(error) else "check HEADWAY_DATABASE_URL",
        ) from error
    return engine


async def migrate(engine: AsyncEngine, tls: TlsArgument | None = None) -> None:
    """Makes the tables of an empty database, and migrates an older one with Alembic, which is not imported for others: it
    and its templates take 10 MB. Raises Refused for a database of a newer Headway, and for one with other tables."""
    async with engine.connect() as connection:
        version = await connection.run_sync(_version)
        difference = await connection.run_sync(_table_difference) if version == HEAD else ""
    if difference:
        raise Refused(
            f"the database {shown_url(str(engine.url))} was made by a development version of Headway: {difference}",
            hint="start that version and take its clusters down with it, then move the database away or set HEADWAY_STATE to "
            "another folder",
        )
    if version == HEAD:
        return
    if version and version > HEAD:
        raise Refused(
            f"the database is at migration {version}, newer than this Headway's {HEAD}",
            hint="start the newer Headway that wrote it",
        )
    async with _patient(engine, tls or {}) as patient, patient.connect() as connection:
        connection = await connection.execution_options(**{WRITE: True})
        async with connection.begin():
            # Two servers may start at once; on SQLite the write lock does the same.
            if engine.dialect.name == "postgresql":
                await connection.execute(text("SELECT pg_advisory_xact_lock(7240178)"))
            await connection.run_sync(_bring_to_newest_version)


@contextlib.asynccontextmanager
async def _patient(engine: AsyncEngine, tls: TlsArgument) -> AsyncIterator[AsyncEngine]:
    """Yields an engine without the timeouts of the pool, because the migration of a large table may take long, here or
    on another server."""
    if engine.dialect.name != "postgresql":
        yield engine
        return
    patient = create_async_engine(engine.url, poolclass=NullPool, connect_args={"server_settings": CUT_OFF, **tls})
    try:
        yield patient
    finally:
        await patient.dispose()


def _version(connection: Connection) -> str:
    """Returns the migration the database is at, "" if it is empty."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table("alembic_version"):
        return ""
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return str(row[0]) if row else ""


def _table_difference(connection: Connection) -> str:
    """Returns the first column in which the tables differ from those of this version; "" if they do not. Versions that
    were not released change tables without a migration."""
    sqlite = connection.dialect.name == "sqlite"
    found = {
        (str(table), str(column)) for table, column in connection.execute(text(_COLUMNS_SQLITE if sqlite else _COLUMNS))
    }
    wanted = {(table.name, column.name) for table in metadata.tables.values() for column in table.columns}
    if missing := sorted(wanted - found):
        return f"it has no {'.'.join(missing[0])}"
    unknown = sorted((table, column) for table, column in found - wanted if table in metadata.tables)
    return f"it has {'.'.join(unknown[0])}, which this version does not know" if unknown else ""


def _bring_to_newest_version(connection: Connection) -> None:
    from sqlalchemy import inspect

    if inspect(connection).get_table_names():
        run_migrations(connection)
        return
    metadata.create_all(connection)
    _versions.create(connection)
    connection.execute(_versions.insert().values(version_num=HEAD))


def run_migrations(connection: Connection) -> None:
    """Runs the migrations that the database lacks: all of them for an empty one."""
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
        # Create the file with its mode before SQLite creates it with the mode of the umask.
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        file.chmod(0o600)
    engine = create_async_engine(url, pool_size=4, max_overflow=8)

    @event.listens_for(engine.sync_engine, "connect")
    def _on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # BEGIN is sent explicitly, below
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
        # A writer takes the lock at the start: a transaction that reads first and then writes may fail with "database
        # is locked".
        if connection.get_execution_options().get(WRITE, False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            # It reads nothing and takes no lock, so it can't fail. Sent to aiosqlite directly it takes one step of its
            # thread instead of the three of a cursor: a third less time for a short query.
            connection.connection.dbapi_connection.run_async(lambda raw: raw.execute("BEGIN"))  # type: ignore[union-attr]

    return engine


def _short(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0][:300]
