"""The store of rentals: what the cloud lists, to the second, and what it does not say any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Rental
from headway.store import Store
from tests.support.clusters import builders

ONE = Rental("aws", "i-1", 1000, None, "lab-1-1", "big", "a", PurchaseOption.SPOT, Decimal("3.60"))
TWO = replace(ONE, instance="i-2", machine="lab-1-2", purchase=PurchaseOption.ON_DEMAND, usd_per_hour=None)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await builders.store(tmp_path, lambda: 1000.0)
    yield made
    await made.close()


async def rentals(store: Store) -> list[Rental]:
    return [rental for cluster, rental in await store.rentals.between(0, 10**10) if cluster == "lab"]


async def test_end_is_that_which_the_cloud_says(store: Store) -> None:
    await store.rentals.record("lab", [ONE, TWO], 1060)
    await store.rentals.record("other", [replace(ONE, instance="i-9")], 1060)
    assert await rentals(store) == [ONE, TWO]
    for now in (1120, 1180):
        await store.rentals.record("lab", [replace(ONE, ended_at=1077), TWO], now)
    assert await rentals(store) == [replace(ONE, ended_at=1077), TWO]
    assert ("other", replace(ONE, instance="i-9")) in await store.rentals.between(0, 10**10)


async def test_end_that_the_cloud_does_not_say_is_when_it_was_noticed(store: Store) -> None:
    await store.rentals.record("lab", [ONE, TWO], 1060)
    await store.rentals.record("lab", [replace(ONE, ended_at=0)], 1120)
    await store.rentals.record("lab", [replace(ONE, ended_at=0)], 1180)
    assert await rentals(store) == [replace(ONE, ended_at=1120), replace(TWO, ended_at=1060)], "and was last listed"


async def test_instance_that_a_list_has_missed_runs_on(store: Store) -> None:
    await store.rentals.record("lab", [ONE], 1060)
    await store.rentals.record("lab", [], 1120)
    await store.rentals.record("lab", [ONE], 1180)
    assert await rentals(store) == [ONE]


async def test_each_start_of_an_instance_is_a_rental_of_its_own(store: Store) -> None:
    await store.rentals.record("lab", [replace(ONE, ended_at=1500)], 1560)
    again = replace(ONE, launched_at=2000)
    await store.rentals.record("lab", [again], 2060)
    assert await rentals(store) == [replace(ONE, ended_at=1500), again]


async def test_price_that_was_known_stays(store: Store) -> None:
    await store.rentals.record("lab", [ONE], 1060)
    await store.rentals.record("lab", [replace(ONE, ended_at=1090, usd_per_hour=None)], 1120)
    assert [one.usd_per_hour for one in await rentals(store)] == [Decimal("3.6")]


async def test_only_rentals_of_the_time_are_returned(store: Store) -> None:
    await store.rentals.record("lab", [replace(ONE, ended_at=1500), replace(TWO, launched_at=3000)], 3060)
    assert [one.instance for _, one in await store.rentals.between(1500, 3000)] == []
    assert [one.instance for _, one in await store.rentals.between(1499, 3001)] == ["i-1", "i-2"]


def offer(usd: str, zone: str = "a") -> Offer:
    return Offer("aws", "big", "", 0, Decimal(usd), "", date(2026, 11, 1), PurchaseOption.SPOT, "r", zone)


async def test_price_that_changes_is_a_new_row_and_one_that_stays_is_seen_again(store: Store) -> None:
    for now, usd in ((1000, "1.50"), (1600, "1.5"), (2200, "1.90"), (2800, "1.50")):
        await store.rentals.record_prices([offer(usd), offer("3", "b"), offer("0", "c")], now)
    found = [(one.zone, f"{one.usd_per_hour}", one.since, one.seen_at) for one in await store.rentals.prices_since(0)]
    assert sorted(found, key=lambda row: (row[2], row[0])) == [
        ("a", "1.5", 1000, 1600), ("b", "3", 1000, 2800), ("a", "1.9", 2200, 2200), ("a", "1.5", 2800, 2800),
    ]  # fmt: skip
    assert [one.since for one in await store.rentals.prices_since(1700)] == [1000, 2200, 2800]
    await store.rentals.record_prices([], 3000)


async def test_machine_that_was_taken_back_stays_so_when_the_cloud_no_longer_says_it(store: Store) -> None:
    await store.rentals.record("lab", [replace(ONE, taken_back=True)], 1060)
    await store.rentals.record("lab", [replace(ONE, ended_at=1077)], 1120)
    assert [one.taken_back for one in await rentals(store)] == [True]
