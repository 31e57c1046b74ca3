"""The server knows for which machines of a cluster something is rented, without asking the cloud."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from headway.server.cluster_backend.connections import ConnectionPool
from headway.server.cluster_backend.rentals import RentalsBackend
from tests.support.cloud.provider_site import NODE, Site
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
