"""The hourly figures of fragmented free GPUs equal a count made minute by minute."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.billing.ledger import GroupAllocation, NodeSpan, SpanKind
from headway.services.billing.ledger.collector import ledger_entries
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, at, got, lab, machines, run
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

GPUS = 8
MINUTE = 60


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    accounting = Accounting()
    accounting.away = True
    async with lab(tmp_path, accounting) as made:
        yield made


async def put(server: Server, *runs: Any) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await server.store.runs.save("lab", ledger_entries(cluster, runs), collected_to=OCTOBER.start)


async def hours(server: Server, month: str = "2026-10") -> Any:
    [kind] = (await got(await server.client("vera", "lead"), f"capacity?period={month}"))["types"]
    return kind


async def test_free_gpus_on_a_partly_used_node_count_as_fragmented(server: Server) -> None:
    await machines(server, 2)
    at(server, 4 * H)
    await put(
        server,
        run(1, 0, H, gpus=6),  # beside it two
        run(2, H, 2 * H, gpus=8, nodes=("lab-1-1",)),
        run(3, H + 1800, 3 * H, gpus=1, nodes=("lab-1-2",)),
        run(4, H + 1800, 3 * H, gpus=3, nodes=("lab-1-2",)),
        run(5, 3 * H, 0, gpus=0, cpus=4),  # in the way of no GPU
    )
    kind = await hours(server)
    assert [(one["free"], one["fragmented"]) for one in kind["hours"]] == [(10, 2), (6, 2), (12, 4), (16, 0)]
    assert kind["fragmentation"] == pytest.approx(8 / 44, abs=1e-6)
    page = (await (await server.client()).get("/clusters/lab/costs?section=capacity&period=2026-10")).text
    assert "18.2 %" in page
    assert "free in pieces, hour by hour" in page


async def test_free_gpus_are_limited_to_gpus_found_on_the_machine(server: Server) -> None:
    await machines(server, 2)
    live = server.state.live
    live.store_snapshot(replace(live.snapshot("lab"), nodes=(replace(builders.node("lab-1-1", "MIXED"), gpus=6),)))
    at(server, H)
    await put(server, run(1, 0, H, gpus=6), run(2, 0, H, gpus=5, nodes=("lab-1-2",)))
    kind = await hours(server)
    assert [(one["allocated"], one["present"], one["free"], one["fragmented"]) for one in kind["hours"]] == [
        (11, 14, 3, 3)
    ]


async def test_down_drained_and_spare_nodes_have_no_free_gpus(server: Server) -> None:
    """One is drained while a job runs on, one is a spare, one is there for an hour alone, one is full."""
    await machines(server, 3)
    await server.store.node_spans.save(
        "lab",
        [
            NodeSpan("lab-1-1", SpanKind.DRAINED, OCTOBER.start + H, OCTOBER.start + 2 * H, "tests"),
            NodeSpan("lab-1-1", SpanKind.DOWN, OCTOBER.start + H + 600, OCTOBER.start + 2 * H, "tests"),
            NodeSpan("lab-1-2", SpanKind.SPARE, OCTOBER.start, 0),
        ],
    )
    await server.store.machine_lifetimes.record("lab", [("lab-1-4", "main")], [], [], OCTOBER.start + 2 * H)
    at(server, 3 * H)
    await put(
        server,
        run(1, 0, 3 * H, gpus=2), run(2, 1800, H + 1800, gpus=4), run(3, 0, 0, nodes=("lab-1-3",)),
        run(4, H, 2 * H + 60, gpus=4, nodes=("lab-1-4",)),  # Slurm says that it began before its machine was there
    )  # fmt: skip
    kind = await hours(server)
    assert [(round(one["free"], 2), round(one["fragmented"], 2)) for one in kind["hours"]] == [
        (4, 4), (0, 0), (13.93, 6.07),
    ]  # fmt: skip


async def test_hourly_fragmentation_matches_a_minute_by_minute_count(server: Server) -> None:
    dice, span, names = random.Random(5), 30 * 60, ("lab-1-1", "lab-1-2", "lab-1-3", "lab-1-4")
    await machines(server, 4)
    allocated = {name: [0] * span for name in names}
    works = {name: [True] * span for name in names}
    runs = []
    for job in range(300):
        start, lasts, gpus = dice.randrange(-300, span), dice.randrange(1, 240), dice.choice((1, 1, 2, 4, 8, 16))
        on = tuple(dice.sample(names, 2 if gpus == 16 else 1))
        share, low, high = gpus // len(on), max(0, start), min(span, start + lasts)
        if start + lasts == 0 or any(allocated[name][i] + share > GPUS for name in on for i in range(low, high)):
            continue
        for name in on:
            for i in range(low, high):
                allocated[name][i] += share
        end = 0 if start + lasts >= span else (start + lasts) * MINUTE
        runs.append(run(job + 1, start * MINUTE, end, gpus=gpus, nodes=on))
    spans = []
    for _ in range(12):
        name, start, lasts = dice.choice(names), dice.randrange(span), dice.randrange(1, 200)
        kind = dice.choice((SpanKind.DOWN, SpanKind.DRAINED, SpanKind.SPARE))
        for i in range(start, min(span, start + lasts)):
            works[name][i] = False
        began = OCTOBER.start + start * MINUTE
        spans.append(NodeSpan(name, kind, began, 0 if start + lasts >= span else began + lasts * MINUTE))
    at(server, span * MINUTE)
    await server.store.node_spans.save("lab", spans)
    await put(server, *runs)
    free, pieces = [0] * 30, [0] * 30
    for name in names:
        for i in range(span):
            left = GPUS - allocated[name][i] if works[name][i] else 0
            free[i // 60] += left
            pieces[i // 60] += left if allocated[name][i] else 0
    found = (await hours(server))["hours"]
    assert len(runs) > 80
    assert [one["free"] for one in found] == pytest.approx([one / 60 for one in free], abs=1e-3)
    assert [row["fragmented"] for row in found] == pytest.approx([piece / 60 for piece in pieces], abs=1e-3)


async def test_run_across_month_end_counts_as_fragmentation_in_both_months(server: Server) -> None:
    await machines(server, 1)
    end = OCTOBER.seconds
    at(server, end + 2 * H)
    await put(server, run(1, end - 2 * H, end + H, gpus=4))
    october, november = [await hours(server, month) for month in ("2026-10", "2026-11")]
    assert [one["fragmented"] for one in october["hours"][-3:]] == [0, 4, 4]
    assert len(october["hours"]) == 744
    assert [(one["free"], one["fragmented"]) for one in november["hours"]] == [(4, 4), (8, 0)]


async def test_run_over_two_groups_counts_its_wait_with_all_gpus(server: Server) -> None:
    """Also in the list that the figure leads to."""
    await machines(server, 2)
    at(server, 2 * H)
    parts = [GroupAllocation(name, (f"lab-{name}",), "h100", 8, 64, 8, 8) for name in ("a", "b")]
    await server.store.runs.save("lab", [(run(1, 0, H, gpus=16), parts, 0)])
    await put(server, run(2, 0, H))
    ann = await server.client()
    waits = (await got(ann, "capacity?period=2026-10"))["waits"]
    assert {wait["size"]: (wait["runs"], wait["p50_s"]) for wait in waits} == {"2 to 8": (1, 60), "9 to 64": (1, 60)}
    for sizes, jobs in (("least_gpus=2&most_gpus=8", [2]), ("least_gpus=9&most_gpus=64", [1])):
        assert [one["job"] for one in (await got(ann, f"usage/runs?start=2026-10&waited=1&{sizes}"))["runs"]] == jobs
        assert (await got(ann, f"usage?start=2026-10&{sizes}"))["total"]["gpu_hours"] == 8.0 * (3 - jobs[0])


async def test_future_month_has_no_capacity_hours(server: Server) -> None:
    await machines(server, 1)
    at(server, H)
    answer = await got(await server.client(), "capacity?period=2026-12")
    assert [one["hours"] for one in answer["types"]] in ([], [[]])
    assert answer["waits"] == []


async def test_allocated_gpus_of_a_removed_group_do_not_exceed_capacity(server: Server) -> None:
    """Nobody knows any more what its machines had; a cluster that is down is shown as its last file says."""
    await server.store.machine_lifetimes.record(
        "lab", [("lab-1-1", "main"), ("lab-old-1-1", "old")], [], [], OCTOBER.start
    )
    at(server, 2 * H)
    kept, gone = run(1, 0, H), run(2, 0, 2 * H, nodes=("lab-old-1-1",))
    await put(server, kept)
    await server.store.runs.save("lab", [(gone, [GroupAllocation("old", gone.nodes, "h100", 8, 64, 8, 8)], 0)])
    kind = await hours(server)
    assert [(one["allocated"], one["present"], one["free"]) for one in kind["hours"]] == [(8, 8, 0), (0, 8, 8)]
    assert kind["utilisation"] == 0.5
    server.backend.answers["take_down"] = ()
    ann = await server.client()
    assert (await ann.post("/api/v1/clusters/lab/down", json={})).status_code == 202
    await server.work_off()
    [down] = (await got(ann, "capacity?period=2026-10"))["types"]
    assert (down["utilisation"], [one["allocated"] for one in down["hours"]]) == (0.5, [8, 0])
