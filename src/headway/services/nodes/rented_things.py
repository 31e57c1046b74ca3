"""Everything that the server rents from clouds, with its price."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.machines.rented import RentedThing
from headway.schemas.nodes import RentedOut, RentedThingOut
from headway.services.app_state import AppState

_CENT = Decimal("0.01")


async def list_rented(state: AppState) -> RentedOut:
    """Returns the things in the order of their clusters and machines, instances first."""
    things, silent = await state.backend.rentals.rented_things()
    now = state.clock()
    order = ("instance", "volume", "address")
    rows = sorted(things, key=lambda thing: (thing.cluster, thing.machine, order.index(thing.kind), thing.id))
    return RentedOut(
        things=[_row(thing, now) for thing in rows],
        silent=list(silent),
        usd_per_hour=sum((thing.usd_per_hour or Decimal(0) for thing in things), Decimal(0)),
    )


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
