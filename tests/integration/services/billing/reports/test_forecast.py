"""The forecast of a cluster: the ledger's days by team and size, seen by who may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.billing.ledger import GroupAllocation
from headway.services.billing.ledger.collector import ledger_entries
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, at, got, lab, machines, run
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

DAY = 24 * H


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Fifteen days: vision has eight GPUs for twelve hours each day, speech two for six hours on the first seven."""
    accounting = Accounting()
    accounting.away = True
    async with lab(tmp_path, accounting) as made:
        await machines(made, 2)
        runs = [
            run(10 + day, day * DAY, day * DAY + 12 * H, eligible=OCTOBER.start + day * DAY - 120) for day in range(15)
        ]
        runs += [
            run(100 + day, day * DAY, day * DAY + 6 * H, team="speech", user="sam", gpus=2, nodes=("lab-1-2",),
                eligible=OCTOBER.start + day * DAY - 5)
            for day in range(7)
        ]  # fmt: skip
        runs.append(run(500, 15 * DAY - 2 * H, 0, gpus=1, nodes=("lab-1-2",)))  # runs over midnight, and still
        await put(made, *runs)
        at(made, 15 * DAY + 3 * H)
        yield made


async def put(server: Server, *runs: Any) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await server.store.runs.save("lab", ledger_entries(cluster, runs), collected_to=OCTOBER.start)


async def test_days_are_what_was_allocated_and_continue(server: Server) -> None:
    found = await got(await server.client(), "forecast")
    used = [day["gpu_hours"] for day in found["used"]]
    assert used == [108.0] * 7 + [96.0] * 7 + [98.0], "two hours of the running job are of the last day"
    assert [day["day"] for day in found["used"]] == list(range(OCTOBER.start, OCTOBER.start + 15 * DAY, DAY))
    assert len(found["forecast"]) == 91
    assert found["forecast"][0]["day"] == OCTOBER.start + 15 * DAY
    assert found["forecast"][0]["gpu_hours"] == pytest.approx((6 * 96 + 98) / 7, abs=0.01)
    assert (found["no_forecast"], found["method"], found["tested_days"]) == ("", "level", 0)


async def test_teams_and_sizes_have_their_hours_and_waits(server: Server) -> None:
    found = await got(await server.client(), "forecast")
    assert {row["name"]: row["gpu_hours"] for row in found["teams"]} == {"speech": 84.0, "vision": 1442.0}
    assert {row["name"]: row["gpu_hours"] for row in found["sizes"]} == {"1 GPU": 2.0, "2 to 8": 1524.0}
    assert {row["name"]: (row["runs"], row["p50_s"]) for row in found["team_waits"]} == {
        "speech": (7, 5),
        "vision": (16, 120),
    }
    sizes = {row["name"]: (row["runs"], row["p50_s"], row["next_p90_s"]) for row in found["size_waits"]}
    assert sizes == {"1 GPU": (1, 60, 60), "2 to 8": (22, 120, 120)}


async def test_leads_see_the_whole_cluster_but_of_teams_only_their_own(server: Server) -> None:
    mine = await got(await server.client("vera", "lead"), "forecast")
    assert [row["name"] for row in mine["teams"]] == ["vision"]
    assert [row["name"] for row in mine["team_waits"]] == ["vision"]
    assert mine["used"][0]["gpu_hours"] == 108.0


async def test_too_short_a_history_says_how_much_is_missing(server: Server) -> None:
    at(server, 9 * DAY)
    found = await got(await server.client(), "forecast")
    assert found["no_forecast"] == "a forecast needs 14 whole days since the first job; there are 9"
    assert (found["forecast"], found["fills"], len(found["used"])) == ([], None, 9)
    page = (await (await server.client()).get("/clusters/lab/costs?section=forecast")).text
    assert "A forecast needs 14 whole days since the first job; there are 9." in page


async def test_cluster_without_any_job_has_no_days(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        found = await got(await made.client(), "forecast")
        assert (found["used"], found["no_forecast"]) == (
            [],
            "a forecast needs 14 whole days since the first job; there are 0",
        )
        assert "No forecast yet" in (await (await made.client()).get("/clusters/lab/costs?section=forecast")).text


async def test_page_shows_the_figures_of_the_api(server: Server) -> None:
    ann = await server.client()
    found = await got(ann, "forecast")
    page = (await ann.get("/clusters/lab/costs?section=forecast")).text
    for words in ("Error of a day", "1,442.00", "GPU-hours by day", "2026-10-16", "not expected"):
        assert words in page, words
    team = f"?section=runs&period=2026-10&start={found['used'][0]['day']}&end={found['forecast'][0]['day']}&team=vision"
    assert team.replace("&", "&amp;") in page
    behind = (await ann.get(f"/clusters/lab/costs{team}")).text
    assert "16 runs · 1,442.00 GPU-hours" in behind
    week = sum(day["gpu_hours"] for day in found["forecast"][:7])
    assert f"{week:,.2f}" in page


async def test_parts_of_a_gpu_over_midnight_sum_up(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        await machines(made, 1)
        half = GroupAllocation("main", ("lab-1-1",), "h100", 0.5, 8, 4, 64)
        runs = [(run(10 + day, day * DAY + 18 * H, day * DAY + 30 * H, gpus=0.5), [half], 0) for day in range(15)]
        await made.store.runs.save("lab", runs, collected_to=OCTOBER.start)
        at(made, 15 * DAY + 3 * H)
        found = await got(await made.client(), "forecast")
        assert [day["gpu_hours"] for day in found["used"]] == [3.0] + [6.0] * 14
        assert found["sizes"][0]["gpu_hours"] == 87.0


async def test_days_before_the_first_machine_do_not_count(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        await machines(made, 1, began=20 * DAY)
        await put(made, run(1, 0, 21 * DAY, gpus=1), run(2, 20 * DAY, 20 * DAY + H))
        at(made, 21 * DAY + H)
        found = await got(await made.client(), "forecast")
        assert [day["gpu_hours"] for day in found["used"]] == [32.0]
        assert found["no_forecast"] == "a forecast needs 14 whole days since the first job; there are 1"


async def test_use_of_a_removed_group_fills_no_day(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        await machines(made, 1)
        rented = GroupAllocation("rented", ("lab-2-1",), "h100", 8, 64, 8, 8)
        runs = [(run(10 + day, day * DAY, day * DAY + DAY, nodes=("lab-2-1",)), [rented], 0) for day in range(20)]
        await made.store.runs.save("lab", runs, collected_to=OCTOBER.start)
        at(made, 20 * DAY)
        found = await got(await made.client(), "forecast")
        assert (found["used"][-1]["gpu_hours"], found["full_days"], found["compared_days"]) == (192.0, 0, 20)


async def test_cluster_without_machines_does_not_say_that_it_never_fills(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        await machines(made, 1, ended=19 * DAY)
        await put(made, *(run(10 + day, day * DAY, day * DAY + 6 * H) for day in range(18)))
        at(made, 20 * DAY)
        found = await got(await made.client(), "forecast")
        assert (found["gpus"], found["fills"]) == (0, None)
        page = (await (await made.client()).get("/clusters/lab/costs?section=forecast")).text
        assert "no machine with GPUs exists now" in page
        assert "not expected" not in page


async def test_full_cluster_is_said_to_be_full(tmp_path: Path) -> None:
    async with lab(tmp_path, Accounting()) as made:
        await machines(made, 1)
        live = made.state.live
        live.store_snapshot(replace(live.snapshot("lab"), nodes=(builders.node("lab-1-1", "ALLOCATED"),)))
        await put(made, *(run(10 + day, day * DAY, day * DAY + DAY) for day in range(28)))
        at(made, 28 * DAY)
        found = await got(await made.client(), "forecast")
        assert (found["gpus"], found["fills"]["expected"], found["full_days"]) == (8, OCTOBER.start + 28 * DAY, 28)
        page = (await (await made.client()).get("/clusters/lab/costs?section=forecast")).text
        assert "On 28 of the last 28 days 95 % of the GPUs were allocated" in page
