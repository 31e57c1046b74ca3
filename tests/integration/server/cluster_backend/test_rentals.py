"""The server knows for which machines of a cluster something is rented, without asking the cloud."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headway.errors import Refused
from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.rentals import RentalsBackend
from tests.support.cloud.provider_site import HEAD, NODE, Site
from tests.support.clusters import builders


async def test_prices_are_those_of_begun_and_taken_machines(tmp_path: Path) -> None:
    site, store = Site(tmp_path), await builders.store(tmp_path, builders.Clock())
    rentals = RentalsBackend(ConnectionPool(store, tmp_path))
    assert await rentals.rented_prices("lab") == {}
    await site.rent()
    assert await rentals.rented_prices("lab") == {NODE: Decimal(1)}
    machine = await site.take()
    assert await rentals.rented_prices("lab") == {NODE: Decimal(1)}
    await site.provider.delete(machine)
    assert await rentals.rented_prices("lab") == {}
    await store.close()


async def test_group_for_which_the_cloud_has_no_offer_hides_no_other_offers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    offers = site.provider.offers

    async def sells_no_nodes(cluster: Any, name: str) -> Any:
        if name == NODE:
            raise Refused("the cloud sells none of big")
        return await offers(cluster, name)

    site.provider.offers = sells_no_nodes  # type: ignore[method-assign]

    async def context(_: Any) -> Any:
        return SimpleNamespace(provider=site.provider)

    pool: Any = SimpleNamespace(context=context)
    found = await RentalsBackend(pool).offers(site.cluster)
    assert {one.instance_type for one in found} == {"little"}
    assert found == await offers(site.cluster, HEAD)
