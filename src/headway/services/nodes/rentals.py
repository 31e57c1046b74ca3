"""Everything that the server rents from clouds, with its price."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal

from headway.billing.prices.seen_prices import price_ranges
from headway.billing.rental_spend import rental_spend
from headway.domain.machines.rented import Rental, RentedThing
from headway.schemas.nodes.rentals import RentalSpendOut, RentedOut, RentedThingOut, SeenPriceOut
from headway.services.app_state import AppState

_CENT = Decimal("0.01")
_PRICES_S = 30 * 86400


async def list_rented(state: AppState) -> RentedOut:
    """Returns the things in the order of their clusters and machines, instances first."""
    things, silent = await state.backend.rentals.rented_things()
    now = state.clock()
    order = ("instance", "volume", "address")
    rows = sorted(things, key=lambda thing: (thing.cluster, thing.machine, order.index(thing.kind), thing.id))
    since = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
    return RentedOut(
        things=[_row(thing, now) for thing in rows],
        silent=list(silent),
        usd_per_hour=sum((thing.usd_per_hour or Decimal(0) for thing in things), Decimal(0)),
        since=since,
        spent=await _spent(state, int(since), int(now)),
        prices=await _prices(state, int(now)),
    )


async def _prices(state: AppState, now: int) -> list[SeenPriceOut]:
    seen = await state.store.rentals.prices_since(now - _PRICES_S)
    ran = [rental for _, rental in await state.store.rentals.between(now - _PRICES_S, now)]
    return [SeenPriceOut(**asdict(one)) for one in price_ranges(seen, ran)]


async def _spent(state: AppState, start: int, end: int) -> list[RentalSpendOut]:
    by_cluster: dict[str, list[Rental]] = {}
    for cluster, rental in await state.store.rentals.between(start, end):
        by_cluster.setdefault(cluster, []).append(rental)
    spends = {cluster: rental_spend(rentals, start, end) for cluster, rentals in by_cluster.items()}
    return [
        RentalSpendOut(
            cluster=cluster,
            usd=spend.usd.quantize(_CENT),
            seconds=spend.seconds,
            unpriced_s=spend.unpriced_s,
            taken_back=sum(one.taken_back for one in by_cluster[cluster]),
        )
        for cluster, spend in spends.items()
    ]


def _row(thing: RentedThing, now: float) -> RentedThingOut:
    usd = None
    if thing.usd_per_hour is not None and thing.since:
        usd = (thing.usd_per_hour * Decimal(max(0.0, now - thing.since)) / 3600).quantize(_CENT)
    return RentedThingOut(
        id=thing.id,
        kind=thing.kind,
        cluster=thing.cluster,
        machine=thing.machine,
        description=thing.description,
        zone=thing.zone,
        state=thing.state,
        since=thing.since,
        usd_per_hour=thing.usd_per_hour,
        usd=usd,
    )
