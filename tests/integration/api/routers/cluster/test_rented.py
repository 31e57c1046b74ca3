"""What the server rents, with prices and what it has cost."""

from __future__ import annotations

from decimal import Decimal

from headway.domain.machines.rented import RentedThing
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
