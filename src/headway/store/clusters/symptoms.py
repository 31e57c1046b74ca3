"""Symptoms of node faults, each stored once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, select

from headway.domain.incident import FaultAction, Symptom
from headway.store.db import cluster_schema as t
from headway.store.db.transactions import StorePart


class SymptomStore(StorePart):
    """Stores the symptoms of nodes."""

    async def exists(self, cluster: str, symptom: str) -> bool:
        """Returns whether the symptom is already stored. Log lines are reported again after a restart of any component
        on the way."""
        s = t.symptoms
        async with self._database.read() as db:
            return (
                await db.execute(select(s.c.id).where(s.c.cluster == cluster, s.c.id == symptom))
            ).first() is not None

    async def add(self, cluster: str, symptom: Symptom) -> None:
        """Stores a symptom; replaces one with the same id."""
        values = {name: getattr(symptom, name) for name in ("id", "at", "node", "code", "gpu", "text", "job", "kind")}
        values["action"] = symptom.action.value if symptom.action else ""
        async with self._database.write() as db:
            s = t.symptoms
            await db.execute(delete(s).where(s.c.cluster == cluster, s.c.id == symptom.id))
            await db.execute(insert(s).values(cluster=cluster, **values))

    async def of_node(self, cluster: str, node: str, since: float) -> tuple[Symptom, ...]:
        """Returns the symptoms of this node at or after that time, the oldest first."""
        s = t.symptoms
        query = select(s).where(s.c.cluster == cluster, s.c.node == node, s.c.at >= since).order_by(s.c.at)
        async with self._database.read() as db:
            return tuple(_symptom_of(row) for row in await db.execute(query))


def _symptom_of(row: Row[Any]) -> Symptom:
    action = FaultAction(row.action) if row.action else None
    return Symptom(row.id, row.at, row.node, row.code, row.gpu, row.text, row.job, row.kind, action)
