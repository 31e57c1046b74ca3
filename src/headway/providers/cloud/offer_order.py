"""How machines are bought, and in which order offers are tried. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from headway.domain.cluster import Group
from headway.domain.machines.offer import Offer, PurchaseOption


def purchases(group: Group | None) -> tuple[PurchaseOption, ...]:
    """Returns how machines of a group, or heads (None), are bought, in the order in which this is tried."""
    if group is None or not group.spot:
        return (PurchaseOption.ON_DEMAND,)
    return (PurchaseOption.SPOT, PurchaseOption.ON_DEMAND) if group.on_demand_fallback else (PurchaseOption.SPOT,)


def sort_offers(offers: Iterable[Offer], wanted: Sequence[str]) -> list[Offer]:
    """Returns offers of one purchase option in the order in which they are tried: `wanted`, the types of the cluster file,
    in their order, then the cheapest first. A price that is not known comes last."""

    def order(offer: Offer) -> tuple[int, Decimal]:
        place = wanted.index(offer.instance_type) if wanted else 0
        return place, offer.price_usd_per_node_hour or Decimal("Infinity")

    return sorted(offers, key=order)
