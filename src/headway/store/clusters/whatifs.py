"""The results of what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart

_KEPT = 10  # results of one cluster


class WhatIfStore(StorePart):
    """Stores the latest results of each cluster."""

    async def record(self, cluster: str, operation: str, at: float, result: Mapping[str, Any]) -> None:
        """Stores a result, which replaces an earlier one of the same operation, and removes the oldest ones."""
        w = t.whatifs
        async with self._database.write() as db:
            await db.execute(delete(w).where(w.c.operation == operation))
            await db.execute(insert(w).values(operation=operation, cluster=cluster, at=at, result=dict(result)))
            old = select(w.c.operation).where(w.c.cluster == cluster).order_by(w.c.at.desc()).offset(_KEPT)
            rows = [row.operation for row in await db.execute(old.limit(_KEPT))]
            await db.execute(delete(w).where(w.c.operation.in_(rows)))

    async def latest(self, cluster: str) -> list[dict[str, Any]]:
        """Returns the results of the cluster, the newest first."""
        w = t.whatifs
        async with self._database.read() as db:
            rows = await db.execute(select(w.c.result).where(w.c.cluster == cluster).order_by(w.c.at.desc()))
            return [dict(row.result) for row in rows]

    async def get(self, cluster: str, operation: str) -> dict[str, Any] | None:
        """Returns the result of an operation on the cluster; None if there is none."""
        w = t.whatifs
        async with self._database.read() as db:
            query = select(w.c.result).where(w.c.cluster == cluster, w.c.operation == operation)
            row = (await db.execute(query)).first()
        return dict(row.result) if row else None
