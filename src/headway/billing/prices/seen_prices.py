"""What clouds have asked for machines over a time, and how often they took spot machines back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import Rental, SeenPrice


@dataclass(frozen=True, slots=True)
class PriceRange:
    """The prices of one type in one zone, USD an hour: that of now, the lowest and the highest. `since`: when that of now
    was first seen; `seen_at`: when it was last seen, unix seconds. `rented` machines ran there, and the cloud took
    `taken_back` of them back."""

    cloud: str
    zone: str
    instance_type: str
    purchase: PurchaseOption
    usd_per_hour: Decimal
    lowest: Decimal
    highest: Decimal
    since: int
    seen_at: int
    rented: int
    taken_back: int


def price_ranges(seen: Iterable[SeenPrice], rentals: Iterable[Rental]) -> list[PriceRange]:
    """Returns the ranges by cloud, type, zone and purchase option."""
    pools: dict[tuple[str, str, str, PurchaseOption], list[SeenPrice]] = {}
    for price in seen:
        pools.setdefault((price.cloud, price.instance_type, price.zone, price.purchase), []).append(price)
    ran, taken_back = Counter[tuple[str, str, str, PurchaseOption]](), Counter[tuple[str, str, str, PurchaseOption]]()
    for one in rentals:
        pool = (one.cloud, one.instance_type, one.zone, one.purchase)
        ran[pool] += 1
        taken_back[pool] += one.taken_back
    ranges = []
    for pool, prices in sorted(pools.items()):
        cloud, kind, zone, purchase = pool
        newest = max(prices, key=lambda price: price.since)
        usd = [price.usd_per_hour for price in prices]
        now = (newest.usd_per_hour, min(usd), max(usd), newest.since, newest.seen_at)
        ranges.append(PriceRange(cloud, zone, kind, purchase, *now, ran[pool], taken_back[pool]))
    return ranges
