"""The results of fabric tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart

_KEPT = 20  # results of one cluster


class FabricTestStore(StorePart):
    """Stores the latest results of each cluster."""

    async def record(self, cluster: str, operation: str, at: float, result: Mapping[str, Any]) -> None:
        """Stores a result, which replaces an earlier one of the same operation, and removes the oldest ones."""
        f = t.fabric_tests
        async with self._database.write() as db:
            await db.execute(delete(f).where(f.c.operation == operation))
            await db.execute(insert(f).values(operation=operation, cluster=cluster, at=at, result=dict(result)))
            old = select(f.c.operation).where(f.c.cluster == cluster).order_by(f.c.at.desc()).offset(_KEPT)
            rows = [row.operation for row in await db.execute(old.limit(_KEPT))]
            await db.execute(delete(f).where(f.c.operation.in_(rows)))

    async def latest(self, cluster: str) -> dict[str, Any] | None:
        """Returns the newest result of the cluster; None if there is none."""
        f = t.fabric_tests
        async with self._database.read() as db:
            query = select(f.c.result).where(f.c.cluster == cluster).order_by(f.c.at.desc()).limit(1)
            row = (await db.execute(query)).first()
        return dict(row.result) if row else None
