"""The cheapest mix of ways to buy, from the ledger of the furnished site."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server
from tests.support.site import demo_state

PATH = "/api/v1/clusters/demo/purchase"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, time.time, **demo_state.answers())
    await demo_state.furnish(made.state, made.backend)
    yield made
    await made.close()


async def test_usage_is_served_by_the_cheapest_mix(server: Server) -> None:
    client = await server.client("vic", "viewer")
    found = (await client.get(PATH)).json()
    assert found["gpu"] == "h100"
    assert found["ways"][0]["name"] == "on-demand"
    assert "owned" in [way["name"] for way in found["ways"]]
    assert sum(part["gpu_hours"] for part in found["mix"]) == pytest.approx(found["usage_gpu_hours"], rel=1e-3)
    assert found["usd"] == pytest.approx(sum(part["usd"] for part in found["mix"]))
    assert 0 < found["usd"] <= found["all_on_demand_usd"]
    assert {one["name"] for one in found["sensitivity"]} >= {"price on-demand", "price owned", "usage"}
    free = (await client.get(f"{PATH}?capex=1&running=0&usd_per_kwh=0")).json()
    assert {part["name"]: part["gpus"] for part in free["mix"]}["on-demand"] == 0


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [("gpu=a10", 400, "no job of demo used a10"), ("years=0", 422, "years"), ("price=1", 422, "price")],
)
async def test_what_has_no_answer(server: Server, query: str, status: int, text: str) -> None:
    answer = await (await server.client("vic", "viewer")).get(f"{PATH}?{query}")
    assert answer.status_code == status
    assert text in answer.text
