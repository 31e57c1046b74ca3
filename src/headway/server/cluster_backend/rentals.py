"""What a server rents from clouds, over all its clusters and regions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import Rental, RentedThing
from headway.errors import HeadwayError
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.providers.base import RentingProvider


class RentalsBackend:
    """Implements services.cluster_backend_rentals.ClusterRentals."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def rented_things(self) -> tuple[tuple[RentedThing, ...], tuple[str, ...]]:
        from headway.providers.base import RentingProvider
        from headway.providers.cloud.rental_records import RentalRecords
        from headway.providers.registry import open_provider

        async def ask(name: str, region: str) -> tuple[tuple[RentedThing, ...], str]:
            provider = open_provider(name, self._pool.state_dir, cloud=CloudSettings(region))
            try:
                return (await provider.things() if isinstance(provider, RentingProvider) else ()), ""
            except HeadwayError as error:
                return (), f"{name} {region}: {error.message}"

        places = await asyncio.to_thread(RentalRecords(self._pool.state_dir).places)
        found = await asyncio.gather(*(ask(name, region) for name, region in places))
        return tuple(thing for things, _ in found for thing in things), tuple(text for _, text in found if text)

    async def rented_prices(self, cluster: str) -> Mapping[str, Decimal]:
        from headway.providers.cloud.rental_records import RentalRecords

        record = await asyncio.to_thread(RentalRecords(self._pool.state_dir).read, cluster)
        return record.prices

    async def unclaimed_things(self, cluster: Cluster) -> tuple[RentedThing, ...]:
        from headway.providers.base import RentingProvider

        provider = (await self._pool.context(cluster)).provider
        return await provider.unclaimed(cluster.name) if isinstance(provider, RentingProvider) else ()

    async def end_things(self, cluster: Cluster, things: Sequence[RentedThing]) -> None:
        from headway.providers.base import RentingProvider

        provider = (await self._pool.context(cluster)).provider
        if isinstance(provider, RentingProvider):
            await provider.end_things(things)

    async def rentals(self, cluster: Cluster) -> tuple[Rental, ...]:
        from headway.providers.base import RentingProvider

        provider = (await self._pool.context(cluster)).provider
        return await provider.rentals(cluster.name) if isinstance(provider, RentingProvider) else ()

    async def offers(self, cluster: Cluster) -> tuple[Offer, ...]:
        from headway.providers.base import RentingProvider

        provider = (await self._pool.context(cluster)).provider
        if not isinstance(provider, RentingProvider):
            return ()
        names = (cluster.head, *(group.slots[0] for group in cluster.groups if group.slots))
        rented = [name for name in names if cluster.provider_of(name).rents_machines]
        found = await asyncio.gather(*(_ask(provider, cluster, name) for name in rented))
        return tuple(offer for some in found for offer in some)

    async def renew_leases(self, cluster: Cluster) -> tuple[str, ...]:
        from headway.cluster.rented.leases import renew_leases

        return await renew_leases(cluster, await self._pool.context(cluster))


async def _ask(provider: RentingProvider, cluster: Cluster, name: str) -> tuple[Offer, ...]:
    """Returns the offers for a head or slot; none if the cloud sells nothing that fits, or does not answer. A launch asks
    again, and reports it."""
    try:
        return await provider.offers(cluster, name)
    except HeadwayError:
        return ()
