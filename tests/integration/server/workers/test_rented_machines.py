"""What is rented and belongs to no machine is ended after two looks, with an incident; leases are renewed by the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import AWS
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Rental, RentedThing
from headway.errors import Unreachable
from headway.server.workers.rented_machines import PRICES_S, RENEW_S, UNCLAIMED, RentedMachinesCheck
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

LOST = RentedThing("i-1", "instance", "lab", "lab-1-1", 1000.0, "p5.48xlarge", "eu-central-1a", "running", number=1)
DISK = replace(LOST, id="vol-1", kind="volume", machine="", description="64 GiB", state="available")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    rented = builders.cluster(4, name="lab", provider=AWS, cloud=CloudSettings("eu-central-1"))
    made.backend.whole["lab"] = rented
    await made.apply()
    made.backend.answers.update(
        {"unclaimed_things": (), "end_things": None, "renew_leases": (), "rentals": (), "offers": ()}
    )
    yield made
    await made.close()


async def incidents(server: Server) -> list[tuple[str, str]]:
    found = await server.store.incidents.search("lab")
    return [(one.node, one.state.value) for one in found if one.what == UNCLAIMED]


async def test_what_is_unclaimed_once_is_left_alone(server: Server) -> None:
    check = RentedMachinesCheck(server.state)
    server.backend.answers["unclaimed_things"] = (LOST,)
    await check.check_all()
    server.backend.answers["unclaimed_things"] = ()
    await check.check_all()
    server.backend.answers["unclaimed_things"] = (LOST,)
    await check.check_all()
    assert server.backend.named("end_things") == []
    assert await incidents(server) == []


async def test_what_is_unclaimed_twice_is_an_incident_and_is_ended(server: Server) -> None:
    check = RentedMachinesCheck(server.state)
    server.backend.answers["unclaimed_things"] = (LOST, DISK)
    await check.check_all()
    await check.check_all()
    assert [things for _, things in server.backend.named("end_things")] == [[LOST], [DISK]]
    assert sorted(await incidents(server)) == [("lab-1-1", "returned"), ("lab-head", "returned")]
    texts = [event.text for event in server.state.live.recent_events("lab")]
    assert any("instance i-1 (p5.48xlarge, eu-central-1a, running) was rented" in text for text in texts)


async def test_incident_stays_open_while_the_cloud_refuses_to_end_it(server: Server) -> None:
    check = RentedMachinesCheck(server.state)

    def refuses(*_: Any) -> None:
        raise Unreachable("the region is away")

    server.backend.answers.update({"unclaimed_things": (LOST,), "end_things": refuses})
    for _ in range(4):
        await check.check_all()
    assert await incidents(server) == [("lab-1-1", "repairing")], "one incident, whatever the number of tries"
    server.backend.answers["end_things"] = None
    await check.check_all()
    assert await incidents(server) == [("lab-1-1", "returned")]


async def test_leases_are_renewed_by_the_clock(server: Server) -> None:
    clock: Any = server.state.clock
    check = RentedMachinesCheck(server.state)
    for _ in range(3):
        await check.check_all()
    assert len(server.backend.named("renew_leases")) == 1
    clock.now += RENEW_S
    await check.check_all()
    assert len(server.backend.named("renew_leases")) == 2


async def test_what_the_cloud_lists_is_recorded_at_each_look(server: Server) -> None:
    ran = Rental("aws", "i-1", 900, None, "lab-1-1", "p5.48xlarge", "a", PurchaseOption.SPOT, Decimal("20.5"))
    server.backend.answers["rentals"] = (ran,)
    check = RentedMachinesCheck(server.state)
    await check.check_all()
    server.backend.answers["rentals"] = (replace(ran, ended_at=990),)
    await check.check_all()
    assert await server.store.rentals.between(0, 2000) == [("lab", replace(ran, ended_at=990))]


async def test_prices_of_offers_are_recorded_every_ten_minutes(server: Server) -> None:
    clock: Any = server.state.clock
    offer = Offer("aws", "p5", "h100", 8, Decimal("20.50"), "", date(2026, 11, 1), PurchaseOption.SPOT, "r", "ra")
    server.backend.answers["offers"] = (offer,)
    check = RentedMachinesCheck(server.state)
    for _ in range(3):
        await check.check_all()
    assert len(server.backend.named("offers")) == 1
    clock.now += PRICES_S
    await check.check_all()
    (seen,) = await server.store.rentals.prices_since(0)
    assert (seen.usd_per_hour, seen.seen_at - seen.since) == (Decimal("20.50"), PRICES_S)


async def test_clusters_that_rent_nothing_are_not_asked_for(server: Server) -> None:
    server.backend.whole["lab"] = builders.cluster(4, name="lab")
    server.state.clusters.forget_datasets("lab")
    row = await server.store.clusters.get("lab")
    assert row is not None
    await server.store.clusters.save("lab", {**row.document, "spec": {**row.document["spec"], "nodes": 4, "spares": 0}})
    await RentedMachinesCheck(server.state).check_all()
    assert server.backend.named("unclaimed_things") == []
