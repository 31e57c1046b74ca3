"""The results of operations that measure or replay: fabric tests and what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.transactions import Database, StorePart


class OperationResultStore(StorePart):
    """Stores the latest results of each cluster. `kind`: of the operations; `kept`: number of results per cluster."""

    def __init__(self, database: Database, kind: str, kept: int) -> None:
        super().__init__(database)
        self._kind, self._kept = kind, kept

    async def record(self, cluster: str, operation: str, at: float, result: Mapping[str, Any]) -> None:
        """Stores a result, which replaces an earlier one of the same operation, and removes the oldest ones."""
        r = t.operation_results
        values = {"operation": operation, "kind": self._kind, "cluster": cluster, "at": at, "result": dict(result)}
        async with self._database.write() as db:
            await db.execute(delete(r).where(r.c.operation == operation))
            await db.execute(insert(r).values(**values))
            old = select(r.c.operation).where(self._of(cluster)).order_by(r.c.at.desc()).offset(self._kept)
            rows = [row.operation for row in await db.execute(old.limit(self._kept))]
            await db.execute(delete(r).where(r.c.operation.in_(rows)))

    async def latest(self, cluster: str, count: int | None = None) -> list[dict[str, Any]]:
        """Returns the results of the cluster, or the newest `count` of them, the newest first."""
        r = t.operation_results
        async with self._database.read() as db:
            rows = await db.execute(select(r.c.result).where(self._of(cluster)).order_by(r.c.at.desc()).limit(count))
            return [dict(row.result) for row in rows]

    async def get(self, cluster: str, operation: str) -> dict[str, Any] | None:
        """Returns the result of an operation on the cluster; None if there is none."""
        r = t.operation_results
        async with self._database.read() as db:
            row = (await db.execute(select(r.c.result).where(self._of(cluster), r.c.operation == operation))).first()
        return dict(row.result) if row else None

    def _of(self, cluster: str) -> ColumnElement[bool]:
        r = t.operation_results
        return and_(r.c.kind == self._kind, r.c.cluster == cluster)
