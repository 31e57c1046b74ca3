"""The price of a node of each group over time."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert, select

from headway.store.db import billing_schema as t
from headway.store.db.rows import PriceRow
from headway.store.db.transactions import StorePart


class Prices(StorePart):
    """Stores price changes."""

    async def record(self, rows: Iterable[PriceRow]) -> None:
        """Stores the rows whose price, spot flag or reserved count differs from the newest stored row of the group."""
        p = t.prices
        async with self._database.write() as db:
            for row in rows:
                where = (p.c.cluster == row.cluster, p.c.group == row.group)
                newest = (await db.execute(select(p).where(*where).order_by(p.c.since.desc()).limit(1))).first()
                values = {name: getattr(row, name) for name in row.__dataclass_fields__}
                if newest is None or {**newest._mapping, "since": row.since} != values:
                    await db.execute(insert(p).values(values))

    async def of_cluster(self, cluster: str) -> tuple[PriceRow, ...]:
        """Returns the prices of a cluster, the oldest first. Prices of a deleted cluster are kept because its usage is
        still billed."""
        p = t.prices
        async with self._database.read() as db:
            rows = await db.execute(select(p).where(p.c.cluster == cluster).order_by(p.c.since, p.c.group))
            return tuple(PriceRow(**row._mapping) for row in rows)
