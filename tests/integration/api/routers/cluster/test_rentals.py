"""What the server rents, with prices and what it has cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Rental, RentedThing
from tests.support.servers.server_fakes import Server

RENTED = "/api/v1/rented"
NODE = RentedThing(
    "i-1", "instance", "lab", "lab-1-1", 1000.0, "p5.48xlarge", "eu-central-1a", "running", Decimal("55.04"), 1
)
DISK = RentedThing("vol-1", "volume", "lab", "lab-1-1", 1000.0, "64 GiB", "eu-central-1a", "in-use", None, 1)
FREE = RentedThing("eipalloc-1", "address", "lab", "", 0.0, "203.0.113.9", "", "available")


async def test_things_come_with_what_they_have_cost(server: Server) -> None:
    server.state.clock = lambda: 1000.0 + 1800
    server.backend.answers["rented_things"] = ((DISK, FREE, NODE), ("aws eu-west-1: it does not answer",))
    found = (await (await server.client("root")).get(RENTED)).json()
    assert [(row["kind"], row["machine"]) for row in found["things"]] == [
        ("address", ""), ("instance", "lab-1-1"), ("volume", "lab-1-1"),
    ]  # fmt: skip
    assert [(row["usd_per_hour"], row["usd"]) for row in found["things"]] == [
        (None, None),
        ("55.04", "27.52"),
        (None, None),
    ]
    assert found["usd_per_hour"] == "55.04"
    assert found["silent"] == ["aws eu-west-1: it does not answer"]


async def test_spend_of_the_month_has_ended_instances_and_clusters_that_are_down(server: Server) -> None:
    server.state.clock = lambda: 2_700_000.0  # 1 February 1970 and some hours
    rental = Rental("aws", "i-1", 2_600_000, 2_692_000, "lab-1-1", "big", "a", PurchaseOption.SPOT, Decimal("3.60"))
    await server.store.rentals.record("lab", [rental, replace(rental, instance="i-2", usd_per_hour=None)], 2_695_000)
    await server.store.rentals.record("gone", [replace(rental, instance="i-3", ended_at=2_600_100)], 2_600_200)
    server.backend.answers["rented_things"] = ((), ())
    found = (await (await server.client("root")).get(RENTED)).json()
    assert found["since"] == 2_678_400
    assert found["spent"] == [
        {"cluster": "lab", "usd": "13.60", "seconds": 27_200, "unpriced_s": 13_600, "taken_back": 0}
    ]


async def test_prices_of_thirty_days_come_with_what_was_rented_and_taken_back_there(server: Server) -> None:
    server.state.clock = lambda: 2_700_000.0
    offer = Offer("aws", "big", "", 0, Decimal("3.60"), "", date(1970, 2, 1), PurchaseOption.SPOT, "r", "a")
    for now, usd in ((2_600_000, "3.60"), (2_650_000, "4.80"), (2_690_000, "2.40")):
        await server.store.rentals.record_prices([replace(offer, price_usd_per_node_hour=Decimal(usd))], now)
    rental = Rental(
        "aws", "i-1", 2_600_000, 2_692_000, "lab-1-1", "big", "a", PurchaseOption.SPOT, Decimal("3.60"), True
    )
    others = [
        replace(rental, instance="i-2", taken_back=False),
        replace(rental, instance="i-3", zone="b"),
        replace(rental, instance="i-4", cloud="openstack"),  # its zones and types may have the same names
    ]
    await server.store.rentals.record("lab", [rental, *others], 2_695_000)
    server.backend.answers["rented_things"] = ((), ())
    found = (await (await server.client("root")).get(RENTED)).json()
    assert found["prices"] == [
        {
            "cloud": "aws", "zone": "a", "instance_type": "big", "purchase": "spot", "usd_per_hour": "2.4", "lowest": "2.4",
            "highest": "4.8", "since": 2_690_000, "seen_at": 2_690_000, "rented": 2, "taken_back": 1,
        }
    ]  # fmt: skip
    assert found["spent"][0]["taken_back"] == 3
