"""All stored records of one cluster, for backup and restore.

The tables are found from the schema: every table with a `cluster` column, and the tables that refer to their rows. A
table added in a later version is included without a change here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Column, Integer, Select, Table, case, delete, func, insert, literal, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.incident import NUMBERS_BEFORE
from headway.store.billing.daily_rollups import SUMS, forget_sums
from headway.store.clusters.secrets import ClusterSecretStore
from headway.store.db import billing_schema as ledger
from headway.store.db import cluster_schema as t
from headway.store.db.metadata import metadata
from headway.store.db.transactions import Database, StorePart, insert_into

# The cluster's own row and its secrets are backed up separately. Secrets of jobs are in no backup. Operations and
# notebooks are temporary; tokens and node images belong to the server; daily sums are computed from the other tables.
# Dataset rows are included although backups do not contain the files: the files may still exist, and a version number must
# not be used twice.
_NOT = {
    "clusters", "secrets", "job_secrets", "former_job_secrets", "job_secret_revisions", "job_secret_deliveries", "operations",
    "notebooks", "tokens", "audit", "node_images",
} | {table.name for table in SUMS}  # fmt: skip
Row = tuple[str, dict[str, Any]]  # (table, its values)
AT_ONCE = 5000  # rows per transaction, which takes a fraction of a second
_NAMED = re.compile(r"(\bincident (?:return |show )?)(\d+)")  # an incident's number in the text of a step
BRINGING = "restore.records"  # name of the secret that lists the tables being restored


class ClusterRecords(StorePart):
    """Exports and restores the records of a cluster."""

    def __init__(self, database: Database, secrets: ClusterSecretStore) -> None:
        super().__init__(database)
        self._secrets = secrets

    async def export(self, cluster: str) -> AsyncIterator[Row]:
        """Yields all rows of a cluster from one consistent snapshot, parents before the rows that refer to them, and
        the uids of its users. The consumer may be slow, as writing to a disk is."""
        async with self._database.read() as db:
            if self._database.server_locks.shared:  # every SQLite transaction is a snapshot and has no timeout
                await db.execution_options(isolation_level="REPEATABLE READ")
                await db.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            for table in tables():
                rows = await db.stream(_rows_of(table, cluster))
                async for row in rows:
                    yield table.name, dict(row._mapping)
            people = select(t.cluster_users.c.name).where(t.cluster_users.c.cluster == cluster)
            async for row in await db.stream(select(t.uids).where(t.uids.c.name.in_(people))):
                yield t.uids.name, dict(row._mapping)

    async def uid_conflicts(self, uids: Mapping[str, int]) -> tuple[str, ...]:
        """Returns one sentence for each name that cannot have its uid on this server."""
        async with self._database.read() as db:
            known = {row.name: row.uid for row in await db.execute(select(t.uids))}
        holder = {uid: name for name, uid in known.items()}
        other = [
            f"{name} has uid {known[name]} here, not {uid}" for name, uid in uids.items() if known.get(name, uid) != uid
        ]
        taken = [
            f"uid {uid} of {name} is {holder[uid]}'s here"
            for name, uid in uids.items()
            if name not in known and uid in holder
        ]
        return tuple(sorted([*other, *taken]))

    async def restore(self, cluster: str, rows: AsyncIterable[Row]) -> int:
        """Restores rows; returns how many.

        Existing data is newer than any backup, so a table that already has rows of the cluster is not changed. A
        million rows take a minute, so they are written in several transactions, and others can write in between, for
        example to renew leases. The restore is still all or nothing: rows of a failed attempt are deleted, at the
        latest before the next attempt."""
        await self.discard_partial_restore(cluster)
        empty = await self._empty_tables(cluster)
        await self._secrets.set(cluster, BRINGING, " ".join(sorted(empty)))
        count, numbers = 0, dict[tuple[str, int], int]()
        try:
            async for piece in _pieces(rows):
                async with self._database.write() as db:
                    await forget_sums(db, cluster)
                    for name, some in groupby(piece, key=lambda row: row[0]):
                        count += await _bring(db, name, [values for _, values in some], empty, numbers)
            await self._end_open_spans(cluster, empty)
        except Exception:
            await self.discard_partial_restore(cluster)
            raise
        await self._secrets.delete(cluster, BRINGING)
        return count

    async def _end_open_spans(self, cluster: str, brought: set[str]) -> None:
        """Ends restored machine lifetimes and node spans at the time the machines were last seen. What happened
        between then and now is unknown, and it would be billed. Machines that still exist begin a new lifetime."""
        v, n = ledger.lives, ledger.node_spans
        async with self._database.write() as db:
            last = (await db.execute(select(func.max(v.c.seen)).where(v.c.cluster == cluster))).scalar() or 0
            for table, seen in ((v, v.c.seen), (n, literal(last))):
                if table.name in brought:
                    ended = case((seen > table.c.began, seen), else_=table.c.began + 1)
                    open_ = (table.c.cluster == cluster, table.c.ended == 0)
                    await db.execute(update(table).where(*open_).values(ended=ended))

    async def _empty_tables(self, cluster: str) -> set[str]:
        """Returns the tables that have no rows of the cluster."""
        async with self._database.read() as db:
            named = [table for table in tables() if "cluster" in table.c]
            full = {table.name for table in named if await _has(db, table, cluster)}
        hanging = {table.name for table in tables() if (above := _parent(table, tables())) and above[1].name in full}
        return {table.name for table in tables()} - full - hanging

    async def discard_partial_restore(self, cluster: str) -> None:
        """Deletes the rows of a restore that did not complete. Call it also when giving up on a restore: otherwise the
        next restore would take these rows for existing data."""
        brought = (await self._tables_being_restored(cluster)).split()
        if not brought:
            return
        async with self._database.write() as db:
            await forget_sums(db, cluster)
        for table in reversed(tables()):
            if table.name in brought:
                async with self._database.write() as db:
                    keys = _rows_of(table, cluster).with_only_columns(*table.primary_key.columns).order_by(None)
                    await db.execute(delete(table).where(tuple_(*table.primary_key.columns).in_(keys)))
        await self._secrets.delete(cluster, BRINGING)

    async def _tables_being_restored(self, cluster: str) -> str:
        return await self._secrets.get(cluster, BRINGING) or ""


def tables() -> tuple[Table, ...]:
    """Returns the tables that are exported, parents first."""
    found: list[Table] = []
    for table in metadata.sorted_tables:
        if table.name not in _NOT and ("cluster" in table.c or _parent(table, found) is not None):
            found.append(table)
    return tuple(found)


def _parent(table: Table, among: Iterable[Table]) -> tuple[Column[Any], Table] | None:
    """Returns (the column that refers to the parent, the parent table), or None."""
    names = {one.name: one for one in among}
    for key in table.foreign_keys:
        if key.column.table.name in names:
            return key.parent, names[key.column.table.name]
    return None


def _rows_of(table: Table, cluster: str) -> Select[Any]:
    if "cluster" in table.c:
        return select(table).where(table.c.cluster == cluster).order_by(*table.primary_key.columns)
    column, parent = _parent(table, tables()) or (None, None)
    assert column is not None
    assert parent is not None
    ours = _rows_of(parent, cluster).with_only_columns(*parent.primary_key.columns).order_by(None)
    return select(table).where(column.in_(ours)).order_by(*table.primary_key.columns)


def _counted(table: Table) -> str:
    """Returns the name of the autoincrement column, or ""."""
    keys = list(table.primary_key.columns)
    counts = len(keys) == 1 and isinstance(keys[0].type, Integer) and keys[0].autoincrement is True
    return str(keys[0].name) if counts else ""


async def _has(db: AsyncConnection, table: Table, cluster: str) -> bool:
    query = select(func.count()).select_from(table).where(table.c.cluster == cluster)
    return bool((await db.execute(query)).scalar())


async def _pieces(rows: AsyncIterable[Row]) -> AsyncIterator[list[Row]]:
    piece: list[Row] = []
    async for row in rows:
        piece.append(row)
        if len(piece) == AT_ONCE:
            yield piece
            piece = []
    yield piece


async def _bring(
    db: AsyncConnection, name: str, some: list[dict[str, Any]], empty: set[str], numbers: dict[tuple[str, int], int]
) -> int:
    """Inserts rows of one table; returns how many were inserted. Rows whose parent was not restored are skipped."""
    if name == t.uids.name:
        for values in some:
            if (await db.execute(select(t.uids.c.uid).where(t.uids.c.name == values["name"]))).first() is None:
                await db.execute(insert(t.uids).values(**values))
        return 0
    table = metadata.tables.get(name)
    if table is None or name not in empty:  # the table is unknown here (from a newer Headway) or already has rows
        return 0
    some = [{column: value for column, value in values.items() if column in table.c} for values in some]
    parent = _parent(table, tables())
    if parent is not None:
        column, above = parent
        if table is t.incident_steps:
            some = [_renumber(values, numbers) for values in some]
        hung = [(values, numbers.get((above.name, values[column.name]))) for values in some]
        some = [{**values, column.name: number} for values, number in hung if number is not None]
    counted = _counted(table)
    if not counted:
        if some:
            await db.execute(insert_into(db, table).on_conflict_do_nothing(), some)
        return len(some)
    if some:
        await _numbered(db, table, counted, some, numbers)
    return len(some)


async def _numbered(
    db: AsyncConnection, table: Table, counted: str, some: list[dict[str, Any]], numbers: dict[tuple[str, int], int]
) -> None:
    """Inserts rows with the numbers they had, because Slurm and people refer to incidents by number. A number that is
    already used here is replaced by one above all others."""
    column = table.c[counted]
    old = [values[counted] for values in some]
    taken = set(await db.scalars(select(column).where(column.in_(old))))
    last = max((await db.execute(select(func.max(column)))).scalar() or 0, *old)
    for number in old:
        last += number in taken
        numbers[table.name, number] = last if number in taken else number
    await db.execute(insert(table), [{**values, counted: numbers[table.name, values[counted]]} for values in some])
    if db.dialect.name == "postgresql":  # PostgreSQL's sequence does not notice numbers that are inserted explicitly
        counter = func.pg_get_serial_sequence(table.name, counted)
        await db.execute(select(func.setval(counter, select(func.max(column)).scalar_subquery())))


def _renumber(step: dict[str, Any], numbers: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    """Returns the step with the incident's number on this server. If the number changed, the first step records the
    old one, because a reason in Slurm may contain it."""

    def number_of(old: int) -> int:
        return numbers.get((t.incidents.name, old), old)

    text = _NAMED.sub(lambda found: f"{found[1]}{number_of(int(found[2]))}", step["text"])
    old, evidence = step["incident"], step["evidence"]
    if step["seq"] == 1 and number_of(old) != old:
        evidence = {**evidence, NUMBERS_BEFORE: [*evidence.get(NUMBERS_BEFORE, ()), old]}
    return {**step, "text": text, "evidence": evidence}
