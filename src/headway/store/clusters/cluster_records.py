"""Everything that is remembered of one cluster, to be kept elsewhere and brought back.

Which tables those are is asked of the schema: all that name a cluster, and what hangs on their rows. A table that a later
version adds is kept without a word here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Column, Integer, Select, Table, case, delete, func, insert, literal, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.incident import NUMBERS_BEFORE
from headway.store.billing.daily_rollups import SUMS, forget_sums
from headway.store.clusters.secrets import Secrets
from headway.store.db import billing_schema as ledger
from headway.store.db import schema as t
from headway.store.db.transactions import Database, StorePart, insert_into

# The cluster's own row and its secrets are kept apart; operations and notebooks are of a moment; tokens and node images are the
# server's; sums of days are made of what is kept. Of datasets the files are in no backup, and may be there still: their numbers
# are not to be given twice.
_NOT = {"clusters", "secrets", "operations", "notebooks", "tokens", "audit", "node_images"} | {one.name for one in SUMS}
Row = tuple[str, dict[str, Any]]  # (table, its values)
AT_ONCE = 5000  # rows, a fraction of a second
_NAMED = re.compile(r"(\bincident (?:return |show )?)(\d+)")  # an incident, in the words of a step
BRINGING = "restore.records"  # among secrets: the tables that rows are being brought back to


class ClusterRecords(StorePart):
    def __init__(self, database: Database, secrets: Secrets) -> None:
        super().__init__(database)
        self._secrets = secrets

    async def export(self, cluster: str) -> AsyncIterator[Row]:
        """All rows of a cluster as they are at one moment, parents before what hangs on them, and its people's uids. Whoever
        takes them may take their time: this waits for a disk."""
        async with self._database.read() as db:
            if self._database.presence.shared:  # of SQLite every transaction sees one moment, and none is given up
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
        """Why these names can't have these uids here: one sentence each."""
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
        """Brings rows back; how many. What the server remembers of the cluster is newer than any backup: a table that has rows
        of it stays as it is. Of a million rows it takes a minute, so they come in pieces, between which others may write:
        leases are renewed. All or none come nevertheless: what a try brought that did not end goes again, at the latest
        before the next one."""
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
        """Machines that are known from elsewhere ended as they were seen last: nobody can say what was between then and now, and
        it would be billed. Those that are there begin anew."""
        v, n = ledger.lives, ledger.node_spans
        async with self._database.write() as db:
            last = (await db.execute(select(func.max(v.c.seen)).where(v.c.cluster == cluster))).scalar() or 0
            for table, seen in ((v, v.c.seen), (n, literal(last))):
                if table.name in brought:
                    ended = case((seen > table.c.began, seen), else_=table.c.began + 1)
                    open_ = (table.c.cluster == cluster, table.c.ended == 0)
                    await db.execute(update(table).where(*open_).values(ended=ended))

    async def _empty_tables(self, cluster: str) -> set[str]:
        """The tables that have nothing of the cluster."""
        async with self._database.read() as db:
            named = [table for table in tables() if "cluster" in table.c]
            full = {table.name for table in named if await _has(db, table, cluster)}
        hanging = {table.name for table in tables() if (above := _parent(table, tables())) and above[1].name in full}
        return {table.name for table in tables()} - full - hanging

    async def discard_partial_restore(self, cluster: str) -> None:
        """What a try brought that did not end. For who gives up as well: later those rows would be taken for old ones."""
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
        mine = (t.secrets.c.cluster == cluster, t.secrets.c.name == BRINGING)
        async with self._database.read() as db:
            return str((await db.execute(select(t.secrets.c.value).where(*mine))).scalar() or "")


def tables() -> tuple[Table, ...]:
    """Parents first."""
    found: list[Table] = []
    for table in t.metadata.sorted_tables:
        if table.name not in _NOT and ("cluster" in table.c or _parent(table, found) is not None):
            found.append(table)
    return tuple(found)


def _parent(table: Table, among: Iterable[Table]) -> tuple[Column[Any], Table] | None:
    """(its column, the table whose row it names)."""
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
    """The column that the database counts up; "" where there is none."""
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
    """Inserts rows of a table; how many had something to hang on."""
    if name == t.uids.name:
        for values in some:
            if (await db.execute(select(t.uids.c.uid).where(t.uids.c.name == values["name"]))).first() is None:
                await db.execute(insert(t.uids).values(**values))
        return 0
    table = t.metadata.tables.get(name)
    if table is None or name not in empty:  # of a newer Headway, or with rows of its own
        return 0
    some = [{column: value for column, value in values.items() if column in table.c} for values in some]
    parent = _parent(table, tables())
    if parent is not None:
        column, above = parent
        if table is t.incident_steps:
            some = [_said_anew(values, numbers) for values in some]
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
    """Under the numbers they had, by which Slurm and people know incidents; behind all others where those are taken here."""
    column = table.c[counted]
    old = [values[counted] for values in some]
    taken = set(await db.scalars(select(column).where(column.in_(old))))
    last = max((await db.execute(select(func.max(column)))).scalar() or 0, *old)
    for number in old:
        last += number in taken
        numbers[table.name, number] = last if number in taken else number
    await db.execute(insert(table), [{**values, counted: numbers[table.name, values[counted]]} for values in some])
    if db.dialect.name == "postgresql":  # which counts by itself, whatever numbers are given
        counter = func.pg_get_serial_sequence(table.name, counted)
        await db.execute(select(func.setval(counter, select(func.max(column)).scalar_subquery())))


def _said_anew(step: dict[str, Any], numbers: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    """A step of an incident whose number may be another here. The first one keeps that before: Slurm's reason may name it."""

    def number_of(old: int) -> int:
        return numbers.get((t.incidents.name, old), old)

    text = _NAMED.sub(lambda found: f"{found[1]}{number_of(int(found[2]))}", step["text"])
    old, evidence = step["incident"], step["evidence"]
    if step["seq"] == 1 and number_of(old) != old:
        evidence = {**evidence, NUMBERS_BEFORE: [*evidence.get(NUMBERS_BEFORE, ()), old]}
    return {**step, "text": text, "evidence": evidence}
