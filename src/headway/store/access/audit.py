"""The audit trail. Append-only: no method changes or removes a line, and database triggers refuse it (see the initial
migration)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Insert, insert, select

from headway.store.db import schema as t
from headway.store.db.rows import AuditRow
from headway.store.db.transactions import StorePart


@dataclass(frozen=True, slots=True)
class AuditAsk:
    """A filter for audit lines; "" and 0 mean no restriction."""

    person: str = ""
    action: str = ""  # a prefix
    target: str = ""  # a prefix: a cluster's name finds everything done on it
    result: str = ""
    since: float = 0.0
    until: float = 0.0


def audit_line(
    at: float,
    person: str,
    action: str,
    target: str,
    detail: Mapping[str, Any],
    *,
    address: str = "",
    result: str = "ok",
) -> Insert:
    """Returns the INSERT for one line. NUL bytes are removed, because PostgreSQL does not store them in text:
    otherwise the line could not be written and the action would be missing from the trail."""
    return insert(t.audit).values(
        at=at,
        person=_text(person, 64),
        action=_text(action, 64),
        target=_text(target, 200),
        detail={name: value.replace("\0", "") if isinstance(value, str) else value for name, value in detail.items()},
        address=_text(address, 64),
        result=result,
    )


def _text(text: str, most: int) -> str:
    return text.replace("\0", "")[:most]


class AuditTrail(StorePart):
    """Writes and reads the audit trail."""

    async def record(
        self,
        person: str,
        action: str,
        target: str,
        detail: Mapping[str, Any] | None = None,
        *,
        address: str = "",
        result: str = "ok",
    ) -> None:
        """Adds one line. `result`: ok | refused | failed. Never pass a secret."""
        line = audit_line(self._database.now(), person, action, target, detail or {}, address=address, result=result)
        async with self._database.write() as db:
            await db.execute(line)

    async def search(
        self, ask: AuditAsk | None = None, *, limit: int = 100, before: int = 0, after: int = -1
    ) -> tuple[AuditRow, ...]:
        """Returns matching lines: the latest first, with numbers below `before`; or, if `after` is given, the oldest
        first, with numbers above it."""
        a, ask = t.audit.c, ask or AuditAsk()
        query = select(t.audit).limit(limit)
        for column, value in ((a.person, ask.person), (a.result, ask.result)):
            if value:
                query = query.where(column == value)
        for column, value in ((a.action, ask.action), (a.target, ask.target)):
            if value:
                query = query.where(column.startswith(value, autoescape=True))
        if ask.since:
            query = query.where(a.at >= ask.since)
        if ask.until:
            query = query.where(a.at < ask.until)
        if before:
            query = query.where(a.number < before)
        if after >= 0:
            query = query.where(a.number > after)
        order = a.number.desc() if after < 0 else a.number
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(order))
            return tuple(AuditRow(**row._mapping) for row in rows)
