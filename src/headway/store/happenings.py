"""What happened on a cluster, from all that is stored about it: operations, incidents, and what people did to its nodes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store import schema as t
from headway.store.base import Base
from headway.store.records import HappeningRow

KINDS = ("operation", "incident", "deed")
# Of an incident's many states those that people ask about afterwards; its own page has all.
_STATES = ("seen", "jobs moved", "returned", "out of service", "false alarm")
_DEEDS = ("node.drain", "node.return", "node.reboot", "node.test", "fault")


class HappeningStore(Base):
    async def happenings(
        self, cluster: str, *, kind: str = "", until: float | None = None, skip: int = 0, limit: int = 100
    ) -> tuple[HappeningRow, ...]:
        """The latest first, none later than `until`; of those at that very moment the first `skip` are left out."""
        found: list[HappeningRow] = []
        async with self._read() as db:
            for read in (_operations, _incidents, _deeds) if not kind else (_OF[kind],):
                found += await read(db, cluster, until, skip + limit)
        found.sort(key=lambda row: (row.at, row.kind, row.name), reverse=True)
        passed = 0
        while passed < skip and passed < len(found) and found[passed].at == until:
            passed += 1
        return tuple(found[passed : passed + limit])


async def _rows(db: AsyncConnection, query: Select[Any], at: Any, until: float | None, limit: int) -> list[Any]:
    if until is not None:
        query = query.where(at <= until)
    return list(await db.execute(query.order_by(at.desc()).limit(limit)))


async def _operations(db: AsyncConnection, cluster: str, until: float | None, limit: int) -> list[HappeningRow]:
    """Each once: where it stands, or when it ended."""
    o = t.operations.c
    at = func.coalesce(o.finished_at, o.started_at, o.created_at)
    query = select(t.operations, at.label("moment")).where(o.cluster == cluster)
    return [
        HappeningRow(
            row.moment, "operation", row.id, row.state, row.person, "",
            {"kind": row.kind, "error": row.error or {}, "took_s": _took(row)},
        )
        for row in await _rows(db, query, at, until, limit)
    ]  # fmt: skip


def _took(row: Any) -> float | None:
    return row.finished_at - row.started_at if row.finished_at and row.started_at else None


async def _incidents(db: AsyncConnection, cluster: str, until: float | None, limit: int) -> list[HappeningRow]:
    i, s = t.incidents.c, t.incident_steps.c
    query = (
        select(s.at, s.incident, s.seq, s.state, s.actor, s.text, i.node)
        .join(t.incidents, i.number == s.incident)
        .where(i.cluster == cluster, s.state.in_(_STATES))
    )
    return [
        HappeningRow(row.at, "incident", str(row.incident), row.state, row.actor, row.node, {"text": row.text})
        for row in await _rows(db, query, s.at, until, limit)
    ]


async def _deeds(db: AsyncConnection, cluster: str, until: float | None, limit: int) -> list[HappeningRow]:
    a = t.audit.c
    query = select(t.audit).where(
        or_(a.target == cluster, a.target.startswith(f"{cluster}/", autoescape=True)),
        a.action.in_(_DEEDS),
        a.result == "ok",  # nothing happened by what was refused or failed
    )
    return [
        HappeningRow(
            row.at, "deed", row.action, row.result, row.person, row.target.partition("/")[2], dict(row.detail)
        )
        for row in await _rows(db, query, a.at, until, limit)
    ]  # fmt: skip


_OF = dict(zip(KINDS, (_operations, _incidents, _deeds), strict=True))
