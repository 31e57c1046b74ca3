"""The lifetimes of machines, which are the basis of invoices."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, or_, select, update

from headway.domain.billing.ledger import MachineLifetime
from headway.store.billing.runs import upsert
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class MachineLifetimeStore(StorePart):
    """Stores machine lifetimes."""

    async def between(self, cluster: str, start: int, end: int) -> list[MachineLifetime]:
        """Returns the lifetimes that overlap the time from `start` until `end`."""
        v = t.lives
        query = select(v).where(v.c.cluster == cluster, v.c.began < end, or_(v.c.ended == 0, v.c.ended > start))
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(v.c.machine, v.c.began))
            return [MachineLifetime(row.machine, row.group, row.began, row.ended, row.seen) for row in rows]

    async def first_began(self, cluster: str) -> int | None:
        """Returns when the first machine of the cluster began; None if it never had one."""
        v = t.lives
        async with self._database.read() as db:
            began: int | None = await db.scalar(select(func.min(v.c.began)).where(v.c.cluster == cluster))
            return began

    async def running(self, cluster: str) -> list[MachineLifetime]:
        """Returns the lifetimes of machines that still exist."""
        v = t.lives
        async with self._database.read() as db:
            rows = await db.execute(select(v).where(v.c.cluster == cluster, v.c.ended == 0))
            return [MachineLifetime(row.machine, row.group, row.began, 0, row.seen) for row in rows]

    async def record(
        self,
        cluster: str,
        began: Iterable[tuple[str, str]],
        ended: Iterable[MachineLifetime],
        seen: Iterable[str],
        now: int,
    ) -> None:
        """Writes one reading: new machines, ended lifetimes, and the machines that were seen (`now` becomes their
        last seen time)."""
        v = t.lives
        async with self._database.write() as db:
            for life in ended:
                mine = (v.c.cluster == cluster, v.c.machine == life.machine, v.c.began == life.began)
                await db.execute(update(v).where(*mine).values(ended=max(life.ended, life.began + 1)))
            for machine, group in began:
                row = {"cluster": cluster, "machine": machine, "began": now, "group": group, "ended": 0, "seen": now}
                await db.execute(upsert(db, v, ("cluster", "machine", "began")), [row])
            names = list(seen)
            if names:
                await db.execute(update(v).where(v.c.cluster == cluster, v.c.ended == 0).values(seen=now))

    async def end_all(self, cluster: str, now: int) -> None:
        """Ends all open lifetimes and node spans of a cluster that was taken down."""
        async with self._database.write() as db:
            for table in (t.lives, t.node_spans):
                open_ = (table.c.cluster == cluster, table.c.ended == 0)
                await db.execute(update(table).where(*open_).values(ended=now))

    async def clusters(self) -> list[str]:
        """Returns every cluster that ever had a machine, including deleted ones."""
        async with self._database.read() as db:
            return [
                name for (name,) in await db.execute(select(t.lives.c.cluster).distinct().order_by(t.lives.c.cluster))
            ]
