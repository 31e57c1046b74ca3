"""Signals of node faults, each stored once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, insert, select

from headway.domain.incident import FaultAction, Signal
from headway.store.db import schema as t
from headway.store.db.transactions import StorePart


class Signals(StorePart):
    """Stores the signals of nodes."""

    async def exists(self, cluster: str, signal: str) -> bool:
        """Returns whether the signal is already stored. Log lines are reported again after a restart of any component
        on the way."""
        s = t.signals
        async with self._database.read() as db:
            return (
                await db.execute(select(s.c.id).where(s.c.cluster == cluster, s.c.id == signal))
            ).first() is not None

    async def add(self, cluster: str, signal: Signal) -> None:
        """Stores a signal; replaces one with the same id."""
        values = {name: getattr(signal, name) for name in ("id", "at", "node", "code", "gpu", "text", "job", "kind")}
        values["action"] = signal.action.value if signal.action else ""
        async with self._database.write() as db:
            s = t.signals
            await db.execute(delete(s).where(s.c.cluster == cluster, s.c.id == signal.id))
            await db.execute(insert(s).values(cluster=cluster, **values))

    async def of_node(self, cluster: str, node: str, since: float) -> tuple[Signal, ...]:
        """Returns the signals of this node at or after that time, the oldest first."""
        s = t.signals
        query = select(s).where(s.c.cluster == cluster, s.c.node == node, s.c.at >= since).order_by(s.c.at)
        async with self._database.read() as db:
            return tuple(_signal_of(row) for row in await db.execute(query))


def _signal_of(row: Row[Any]) -> Signal:
    action = FaultAction(row.action) if row.action else None
    return Signal(row.id, row.at, row.node, row.code, row.gpu, row.text, row.job, row.kind, action)
