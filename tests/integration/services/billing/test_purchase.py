"""The cheapest mix of ways to buy, from the ledger of the furnished site."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.billing.billing_cluster import Accounting, H, at, got, lab, machines, run
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


async def test_jobs_on_removed_nodes_are_named_as_not_counted(tmp_path: Path) -> None:
    accounting = Accounting()
    accounting.runs = [run(1, 0, 4 * H), run(2, 0, 2 * H, nodes=("old-1",))]
    async with lab(tmp_path, accounting) as server:
        await machines(server, 1)
        at(server, 5 * H)
        found = await got(await server.client(), "purchase?on_demand=3")
        assert found["usage_gpu_hours"] == 32
        assert "16 GPU-hours on nodes that the cluster file no longer has are not counted" in found["assumptions"]


async def test_form_keeps_the_gpu_type(server: Server) -> None:
    client = await server.client("vic", "viewer")
    page = (await client.get("/clusters/demo/costs?section=buy&gpu=h100")).text
    assert '<input type="hidden" name="gpu" value="h100">' in page


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [("gpu=a10", 400, "no job of demo used a10"), ("years=0", 422, "years"), ("price=1", 422, "price")],
)
async def test_what_has_no_answer(server: Server, query: str, status: int, text: str) -> None:
    answer = await (await server.client("vic", "viewer")).get(f"{PATH}?{query}")
    assert answer.status_code == status
    assert text in answer.text
