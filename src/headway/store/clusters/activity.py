"""The activity of a cluster: operations, incidents, and what people did to its nodes, as one list."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.db import access_schema as access
from headway.store.db import cluster_schema as t
from headway.store.db.rows import ActivityPlace, ActivityRow
from headway.store.db.transactions import StorePart

KINDS = ("operation", "incident", "action")
# The states of an incident in the list of events; the incident's own page shows all of them.
_STATES = ("seen", "jobs moved", "returned", "out of service", "false alarm")
_ACTIONS = ("node.drain", "node.return", "node.reboot", "node.test", "fault")


class ActivityLog(StorePart):
    """Reads the activity of a cluster."""

    async def recent(
        self, cluster: str, *, kind: str = "", after: ActivityPlace | None = None, limit: int = 100
    ) -> tuple[ActivityRow, ...]:
        """Returns the latest entries first, starting after the place `after`."""
        found: list[ActivityRow] = []
        async with self._database.read() as db:
            for read in (_operations, _incidents, _actions) if not kind else (_OF[kind],):
                found += await read(db, cluster, after, limit)
        return tuple(sorted(found, key=lambda row: row.place, reverse=True)[:limit])


async def _rows(
    db: AsyncConnection,
    query: Select[Any],
    kind: str,
    columns: tuple[Any, ...],
    after: ActivityPlace | None,
    limit: int,
) -> list[Any]:
    """Runs a query, the latest rows first. `columns` is the sort order within this kind, with the time first; no two
    rows have the same values."""
    if after is not None:
        at, moment = columns[0], after[0]
        if kind == after[1]:
            query = query.where(tuple_(*columns) < tuple_(moment, *after[2:][: len(columns) - 1]))
        else:
            query = query.where(at <= moment if kind < after[1] else at < moment)
    return list(await db.execute(query.order_by(*(column.desc() for column in columns)).limit(limit)))


async def _operations(db: AsyncConnection, cluster: str, after: ActivityPlace | None, limit: int) -> list[ActivityRow]:
    """Returns each operation once, in its present state; its time is when it ended, or else started, or else was
    created."""
    o = t.operations.c
    at = func.coalesce(o.finished_at, o.started_at, o.created_at)
    columns = (o.number, o.id, o.state, o.person, o.kind, o.error, o.started_at, o.finished_at)
    query = select(*columns, at.label("moment")).where(o.cluster == cluster)
    return [
        ActivityRow(
            row.moment, "operation", row.id, row.state, row.person, "",
            {"kind": row.kind, "error": row.error or {}, "took_s": _took(row)}, row.number,
        )
        for row in await _rows(db, query, "operation", (at, o.number), after, limit)
    ]  # fmt: skip


def _took(row: Any) -> float | None:
    return row.finished_at - row.started_at if row.finished_at and row.started_at else None


async def _incidents(db: AsyncConnection, cluster: str, after: ActivityPlace | None, limit: int) -> list[ActivityRow]:
    i, s = t.incidents.c, t.incident_steps.c
    query = (
        select(s.at, s.incident, s.seq, s.state, s.actor, s.text, i.node)
        .join(t.incidents, i.number == s.incident)
        .where(i.cluster == cluster, s.state.in_(_STATES))
    )
    return [
        ActivityRow(
            row.at,
            "incident",
            str(row.incident),
            row.state,
            row.actor,
            row.node,
            {"text": row.text},
            row.incident,
            row.seq,
        )
        for row in await _rows(db, query, "incident", (s.at, s.incident, s.seq), after, limit)
    ]


async def _actions(db: AsyncConnection, cluster: str, after: ActivityPlace | None, limit: int) -> list[ActivityRow]:
    a = access.audit.c
    query = select(access.audit).where(
        or_(a.target == cluster, a.target.startswith(f"{cluster}/", autoescape=True)),
        a.action.in_(_ACTIONS),
        a.result == "ok",  # a refused or failed action changed nothing
    )
    return [
        ActivityRow(
            row.at, "action", row.action, row.result, row.person, row.target.partition("/")[2], dict(row.detail), row.number
        )
        for row in await _rows(db, query, "action", (a.at, a.number), after, limit)
    ]  # fmt: skip


_OF = dict(zip(KINDS, (_operations, _incidents, _actions), strict=True))
