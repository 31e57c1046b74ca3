"""Stores how far the ledger of each cluster has been collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart, insert_into


@dataclass(frozen=True, slots=True)
class CollectedUntil:
    """How far the collection of usage data has come, in unix seconds; `longest_s` is the longest run in seconds."""

    collected_to: int = 0
    measured_to: int = 0
    swept_at: int = 0
    longest_s: int = 0
    error: str = ""


class LedgerProgress(StorePart):
    """Stores the progress of each cluster."""

    async def get(self, cluster: str) -> CollectedUntil:
        """Returns the progress of a cluster, zeros if nothing was collected yet."""
        m = t.ledger_marks
        async with self._database.read() as db:
            row = (await db.execute(select(m).where(m.c.cluster == cluster))).first()
        return (
            CollectedUntil(row.collected_to, row.measured_to, row.swept_at, row.longest_s, row.error)
            if row
            else CollectedUntil()
        )

    async def update(self, cluster: str, **values: Any) -> None:
        """Changes the given columns."""
        async with self._database.write() as db:
            await self.update_in(db, cluster, values)

    async def update_in(self, db: AsyncConnection, cluster: str, values: Mapping[str, Any]) -> None:
        """Does the same as `update`, within the caller's transaction."""
        m = t.ledger_marks
        if not (await db.execute(update(m).where(m.c.cluster == cluster).values(**values))).rowcount:
            blank = {"collected_to": 0, "measured_to": 0, "swept_at": 0, "longest_s": 0, "error": ""}
            await db.execute(insert_into(db, m).values(**{**blank, **values, "cluster": cluster}))

    async def longest_s(self, db: AsyncConnection, cluster: str, seconds: int) -> int:
        """Returns the duration of the longest known run of the cluster, or `seconds` if that is longer."""
        m = t.ledger_marks
        known = (await db.execute(select(m.c.longest_s).where(m.c.cluster == cluster))).scalar()
        return max(seconds, known or 0)
