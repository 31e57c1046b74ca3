"""Models of what the server rents from clouds."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.machines.offer import PurchaseOption
from headway.schemas.base import ResponseModel


class RentedThingOut(ResponseModel):
    """Something that costs money at a cloud: an instance, a volume or an address."""

    id: str
    kind: str
    cluster: str
    machine: str  # "" if its tags name none
    description: str  # instance type, size or address
    zone: str
    state: str
    since: float  # unix seconds; 0 = the cloud does not say
    usd_per_hour: Decimal | None = None  # None: the price is not known
    usd: Decimal | None = None  # since then, at that price


class RentalSpendOut(ResponseModel):
    """What a cluster's instances have cost in a month, those that have ended included."""

    cluster: str
    usd: Decimal
    seconds: int  # of all instances together
    unpriced_s: int  # of these, the seconds whose price is not known
    taken_back: int = 0  # spot instances that the cloud took back


class SeenPriceOut(ResponseModel):
    """What a cloud asked for one type in one zone in the last 30 days, USD an hour."""

    cloud: str
    zone: str
    instance_type: str
    purchase: PurchaseOption
    usd_per_hour: Decimal  # as last seen
    lowest: Decimal
    highest: Decimal
    since: int  # unix seconds; when the last price was first seen
    seen_at: int  # when it was last seen
    rented: int  # instances of this server that ran there
    taken_back: int  # of these, spot instances that the cloud took back


class RentedOut(ResponseModel):
    """Everything that this server rents. `silent`: the regions that did not answer, with the reason."""

    things: list[RentedThingOut]
    silent: list[str]
    usd_per_hour: Decimal  # of the things whose price is known
    since: float = 0.0  # begin of the present month (UTC), unix seconds
    spent: list[RentalSpendOut] = []  # since then, by cluster, those that are down included
    prices: list[SeenPriceOut] = []  # by cloud, type, zone and purchase option
