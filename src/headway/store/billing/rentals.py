"""Times in which instances of clouds ran, with their prices: what a cloud's own bill is made from. And the prices that clouds
asked, as they were seen."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from sqlalchemy import and_, func, or_, select, update

from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Rental, SeenPrice
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
                        "cloud": one.cloud, "instance": one.instance, "launched_at": one.launched_at, "cluster": cluster,
                        "machine": one.machine, "instance_type": one.instance_type, "zone": one.zone,
                        "purchase": one.purchase.value, "usd_per_hour": usd, "ended_at": ended_at, "seen_at": now,
                        "taken_back": one.taken_back or bool(was and was.taken_back),
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
                        row.cloud, row.instance, row.launched_at, row.ended_at or None, row.machine, row.instance_type,
                        row.zone, PurchaseOption(row.purchase),
                        None if row.usd_per_hour is None else Decimal(row.usd_per_hour), row.taken_back,
                    ),
                )
                for row in rows
            ]  # fmt: skip

    async def record_prices(self, offers: Iterable[Offer], now: int) -> None:
        """Writes the prices of these offers. One that has not changed is the same row; one that is not known is left out."""
        s = t.seen_prices
        pools = (s.c.cloud, s.c.instance_type, s.c.zone, s.c.purchase)
        async with self._database.write() as db:
            newest = select(*pools, func.max(s.c.since).label("since")).group_by(*pools).subquery()
            same = [column == newest.c[column.name] for column in (*pools, s.c.since)]
            known = {
                tuple(row[:4]): row
                for row in await db.execute(select(*pools, s.c.since, s.c.usd_per_hour).join(newest, and_(*same)))
            }
            rows = {}
            for offer in offers:
                if offer.price_usd_per_node_hour:
                    pool = (offer.cloud, offer.instance_type, offer.zone, offer.purchase.value)
                    usd, was = f"{offer.price_usd_per_node_hour.normalize():f}", known.get(pool)
                    since = was.since if was and was.usd_per_hour == usd else now
                    values = zip((column.name for column in pools), pool, strict=True)
                    rows[pool] = {**dict(values), "since": since, "usd_per_hour": usd, "seen_at": now}
            if rows:
                await db.execute(upsert(db, s, (*(column.name for column in pools), "since")), list(rows.values()))

    async def prices_since(self, start: int) -> list[SeenPrice]:
        """Returns the prices that were seen after `start`, unix seconds."""
        s = t.seen_prices
        async with self._database.read() as db:
            rows = await db.execute(select(s).where(s.c.seen_at > start).order_by(s.c.since))
            return [
                SeenPrice(
                    row.cloud, row.zone, row.instance_type, PurchaseOption(row.purchase), Decimal(row.usd_per_hour),
                    row.since, row.seen_at,
                )
                for row in rows
            ]  # fmt: skip
