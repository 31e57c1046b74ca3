"""The audit trail. Append-only: no method changes or removes a line, database triggers refuse it (see the initial
migration), and a hash chain (`domain.access.audit_chain`) shows it where a person changed the database itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.domain.access.audit_chain import START, ChainCheck, check_line, line_hash
from headway.store.db import access_schema as t
from headway.store.db.rows import AuditRow
from headway.store.db.transactions import StorePart

CHECK_BATCH = 1_000  # lines that are in memory during a check


@dataclass(frozen=True, slots=True)
class AuditAsk:
    """A filter for audit lines; "" and 0 mean no restriction."""

    person: str = ""
    action: str = ""  # a prefix
    target: str = ""  # a prefix: a cluster's name finds everything done on it
    result: str = ""
    since: float = 0.0
    until: float = 0.0


async def add_audit_line(
    db: AsyncConnection,
    at: float,
    person: str,
    action: str,
    target: str,
    detail: Mapping[str, Any],
    *,
    address: str = "",
    result: str = "ok",
) -> None:
    """Adds one line to the end of the hash chain, within a write transaction (only one runs at a time). NUL bytes are
    removed, because PostgreSQL does not store them in text: otherwise the line could not be written and the action
    would be missing from the trail."""
    a = t.audit.c
    last = (await db.execute(select(a.number, a.hash).order_by(a.number.desc()).limit(1))).first()
    number, previous = (last.number, last.hash) if last else (0, START)
    line = {
        "number": number + 1,
        "at": at,
        "person": _text(person, 64),
        "action": _text(action, 64),
        "target": _text(target, 200),
        "detail": {
            name: value.replace("\0", "") if isinstance(value, str) else value for name, value in detail.items()
        },
        "address": _text(address, 64),
        "result": result,
    }
    await db.execute(insert(t.audit).values(**line, hash=line_hash(previous, line)))


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
        async with self._database.write() as db:
            await add_audit_line(
                db, self._database.now(), person, action, target, detail or {}, address=address, result=result
            )

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

    async def check_chain(self) -> ChainCheck:
        """Checks the hashes of all lines, the oldest first, up to the first that does not match."""
        state = ChainCheck()
        while rows := await self.search(limit=CHECK_BATCH, after=state.number):
            for row in rows:
                state = check_line(state, asdict(row))
                if state.broken_at:
                    return state
        return state

    async def hash_of(self, number: int) -> str:
        """Returns the hash of a line; "" if there is no such line."""
        async with self._database.read() as db:
            return (await db.execute(select(t.audit.c.hash).where(t.audit.c.number == number))).scalar() or ""
