"""Prices of rented machines for the limits of groups and clusters: those of their launches, and for slots without a machine
those of the cloud's offers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from headway.domain.cluster import Cluster, Group
from headway.domain.machines.offer import Offer
from headway.domain.machines.rental_price import rental_price
from headway.errors import HeadwayError
from headway.providers.base import Provider, RentingProvider

OFFERS_S = 600.0  # how long the offers of a group are used again
_RETRY_S = 60.0  # after the cloud has not answered


@dataclass
class SlotPrices:
    """The prices of one cluster, with the offers that were asked for last."""

    offers: dict[str, tuple[Offer, ...]] = field(default_factory=dict)  # by group
    ask_at: dict[str, float] = field(default_factory=dict)  # group -> when its offers are asked for again

    async def read(self, cluster: Cluster, provider: Provider, now: float) -> Mapping[str, Decimal]:
        """Returns the price of each rented machine, and of each further one that a limit holds for, by name, USD an hour. That
        of a further one is the lowest of its group's offers: a launch passes over offers that the limit does not allow. A
        group is missing while its cloud has not answered yet; then the price of the cluster file holds."""
        if not isinstance(provider, RentingProvider):
            return {}
        groups = [
            group
            for group in cluster.groups
            if group.autoscaled
            and (group.provider or cluster.provider).rents_machines
            and not (cluster.max_usd_per_hour is None and group.max_usd_per_hour is None)
        ]
        await asyncio.gather(*(self._ask(cluster, group, provider, now) for group in groups))
        prices: dict[str, Decimal] = {}
        for group in groups:
            usd = [rental_price(group, offer=offer) for offer in self.offers.get(group.name, ())]
            prices |= dict.fromkeys(group.slots, min(usd)) if usd else {}
        return {**prices, **await provider.launch_prices(cluster.name)}

    async def _ask(self, cluster: Cluster, group: Group, provider: RentingProvider, now: float) -> None:
        """Asks for the offers of a group if it is time."""
        if now < self.ask_at.get(group.name, 0.0):
            return
        try:
            self.offers[group.name] = await provider.offers(cluster, group.slots[0])
            self.ask_at[group.name] = now + OFFERS_S
        except HeadwayError:  # a launch asks again, and reports it
            self.ask_at[group.name] = now + _RETRY_S
