"""Times in which instances of clouds ran, with their prices: what a cloud's own bill is made from."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from sqlalchemy import or_, select, update

from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import Rental
from headway.store.billing.runs import upsert
from headway.store.db import billing_schema as t
from headway.store.db.transactions import StorePart


class RentalStore(StorePart):
    """Stores rentals."""

    async def record(self, cluster: str, listed: Iterable[Rental], now: int) -> None:
        """Writes what the cloud lists. Where it does not say when a rental ended, that is now; one that is not listed any
        more ended when it was last listed. What is known of a price or an end stays when the cloud no longer says it."""
        r = t.rentals
        async with self._database.write() as db:
            known = {
                (row.instance, row.launched_at): row
                for row in await db.execute(select(r).where(r.c.cluster == cluster))
            }
            rows = []
            for one in listed:
                was = known.get((one.instance, one.launched_at))
                ended_at = 0 if one.ended_at is None else one.ended_at or (was.ended_at if was else 0) or now
                usd = f"{one.usd_per_hour.normalize():f}" if one.usd_per_hour else was.usd_per_hour if was else None
                rows.append(
                    {
                        "instance": one.instance, "launched_at": one.launched_at, "cluster": cluster, "machine": one.machine,
                        "instance_type": one.instance_type, "zone": one.zone, "purchase": one.purchase.value,
                        "usd_per_hour": usd, "ended_at": ended_at, "seen_at": now,
                    }
                )  # fmt: skip
            if rows:
                await db.execute(upsert(db, r, ("instance", "launched_at")), rows)
            mine = (r.c.cluster == cluster, r.c.ended_at == 0, r.c.seen_at < now)
            await db.execute(update(r).where(*mine).values(ended_at=r.c.seen_at))

    async def between(self, start: int, end: int) -> list[tuple[str, Rental]]:
        """Returns the rentals of all clusters that overlap the time from `start` until `end`: (cluster, rental)."""
        r = t.rentals
        query = select(r).where(r.c.launched_at < end, or_(r.c.ended_at == 0, r.c.ended_at > start))
        async with self._database.read() as db:
            rows = await db.execute(query.order_by(r.c.cluster, r.c.machine, r.c.launched_at))
            return [
                (
                    row.cluster,
                    Rental(
                        row.instance, row.launched_at, row.ended_at or None, row.machine, row.instance_type, row.zone,
                        PurchaseOption(row.purchase), None if row.usd_per_hour is None else Decimal(row.usd_per_hour),
                    ),
                )
                for row in rows
            ]  # fmt: skip
