"""The part of the cluster backend that asks clouds for what is rented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import Rental, RentedThing


class ClusterRentals(Protocol):
    """What is rented from clouds."""

    async def rented_things(self) -> tuple[tuple[RentedThing, ...], tuple[str, ...]]:
        """Returns all of this server that costs money at clouds, and which regions did not answer and why."""
        ...

    async def rented_prices(self, cluster: str) -> Mapping[str, Decimal]:
        """Returns the price of each machine that is rented or whose launch has begun, by name, USD an hour, without asking
        the cloud; 0 = not known."""
        ...

    async def unclaimed_things(self, cluster: Cluster) -> tuple[RentedThing, ...]:
        """Returns what has the cluster's tags and belongs to none of its machines. () where nothing is rented."""
        ...

    async def end_things(self, cluster: Cluster, things: Sequence[RentedThing]) -> None:
        """Ends instances and deletes volumes and addresses."""
        ...

    async def rentals(self, cluster: Cluster) -> tuple[Rental, ...]:
        """Returns when the cluster's instances ran, also those that ended a short while ago. () where nothing is rented."""
        ...

    async def offers(self, cluster: Cluster) -> tuple[Offer, ...]:
        """Returns what the cloud offers now for the cluster's heads and rented groups: nothing for those for which it
        refuses or does not answer."""
        ...

    async def renew_leases(self, cluster: Cluster) -> tuple[str, ...]:
        """Renews the leases of the cluster's rented machines. Returns the names of those that did not answer."""
        ...
