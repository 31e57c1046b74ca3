"""The price of a node of each group over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from decimal import Decimal

from sqlalchemy import insert, select

from headway.domain.billing.ledger import NodePrice
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class PriceStore(StorePart):
    """Stores price changes."""

    async def record(self, cluster: str, prices: Iterable[NodePrice]) -> None:
        """Stores the prices that differ from the newest stored price of the group in more than their time."""
        p = t.prices
        async with self._database.write() as db:
            for price in prices:
                where = (p.c.cluster == cluster, p.c.group == price.group)
                newest = (await db.execute(select(p).where(*where).order_by(p.c.since.desc()).limit(1))).first()
                usd_per_hour = f"{price.usd_per_hour.normalize():f}"
                values = {"cluster": cluster, **asdict(price), "usd_per_hour": usd_per_hour}
                if newest is None or {**newest._mapping, "since": price.since} != values:
                    await db.execute(insert(p).values(values))

    async def of_cluster(self, cluster: str) -> tuple[NodePrice, ...]:
        """Returns the prices of a cluster, the oldest first. Prices of a deleted cluster are kept because its usage is
        still billed."""
        p = t.prices
        columns = select(p.c.group, p.c.since, p.c.usd_per_hour, p.c.spot, p.c.reserved)
        async with self._database.read() as db:
            rows = await db.execute(columns.where(p.c.cluster == cluster).order_by(p.c.since, p.c.group))
            return tuple(
                NodePrice(group, since, Decimal(usd), spot, reserved) for group, since, usd, spot, reserved in rows
            )
