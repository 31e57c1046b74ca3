"""Closed invoices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from headway.errors import Conflict
from headway.store.db import billing_schema as t
from headway.store.db.rows import InvoiceRow
from headway.store.db.transactions import StorePart


class InvoiceStore(StorePart):
    """Stores closed invoices."""

    async def of_cluster(self, cluster: str) -> list[InvoiceRow]:
        """Returns the closed invoices of a cluster, the oldest first."""
        i = t.invoices
        async with self._database.read() as db:
            rows = await db.execute(select(i).where(i.c.cluster == cluster).order_by(i.c.period))
            return [InvoiceRow(**row._mapping) for row in rows]

    async def close(self, cluster: str, period: str, document: Mapping[str, Any], person: str) -> InvoiceRow:
        """Stores a closed invoice, which never changes. Raises Conflict if the period is already closed."""
        i = t.invoices
        values = {"cluster": cluster, "period": period, "closed_at": self._database.now(), "closed_by": person}
        try:
            async with self._database.write() as db:
                await db.execute(insert(i).values(**values, document=dict(document)))
        except IntegrityError:
            raise Conflict(
                f"the invoice of {cluster} for {period} is closed already",
                hint="later changes become a correction on the next invoice",
            ) from None
        return next(row for row in await self.of_cluster(cluster) if row.period == period)
