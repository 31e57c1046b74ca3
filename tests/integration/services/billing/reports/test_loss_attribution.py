"""The unproductive time of each run of a month is attributed to its causes and equals the loss in chargeback to the
cent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from headway.domain.billing.ledger import CheckpointStats, NodePrice
from headway.domain.incident import FaultAction
from headway.services.billing.billing_round import run_billing_round
from headway.services.billing.ledger.collector import ledger_entries
from headway.services.billing.reports import loss_attribution as api_causes
from tests.support.billing.billing_cluster import OCTOBER, V1, Accounting, H, accounting, at, got, machines, run, server
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures

MONTH_S = OCTOBER.seconds


async def put(server: Server, *runs: Any) -> None:
    """As accounting says them, without asking it."""
    cluster = (await server.state.clusters.get("lab"))[1]
    await server.store.runs.save("lab", ledger_entries(cluster, runs), collected_to=int(server.state.clock()))


async def idled(server: Server, *jobs: tuple[int, int, int]) -> None:
    """(job, its end, seconds that it idled) each."""
    samples = [(job, OCTOBER.start + end, seconds, seconds, None) for job, end, seconds in jobs]
    await server.store.runs.add_measurements("lab", samples, OCTOBER.start)


async def incident(server: Server, node: str, what: str, *jobs: int, at: int) -> None:
    opened = await server.store.incidents.open("lab", node, what, FaultAction.RESET, OCTOBER.start + at, {})
    await server.store.incidents.record_requeued_jobs(opened.number, jobs, OCTOBER.start + at)


async def told(server: Server, person: str = "ann", role: str = "admin", month: str = "2026-10") -> Any:
    return await got(await server.client(person, role), f"goodput?period={month}")


async def test_causes_cover_all_lost_work_of_many_runs(server: Server, accounting: Accounting) -> None:
    """More than anybody would read one by one: many that lost little, and a few that lost much."""
    await machines(server, 2)
    accounting.away = True
    short = [run(100 + i, 30 * i, 30 * i + 20, state="PREEMPTED", gpus=1) for i in range(3000)]
    dear = [run(10 + i, 95_000 + 4000 * i, 98_600 + 4000 * i, state="REQUEUED") for i in range(3)]
    failed = [run(50, 0, 3600, team="speech", user="sam", nodes=("lab-1-2",), state="NODE_FAIL")]
    at(server, 40 * H)
    await put(server, *short, *dear, *failed)
    found = await told(server)
    causes = {one["what"]: one for one in found["causes"] if one["kind"] != "queue"}
    price = Decimal(8) / 8 / H  # of a GPU-second
    assert causes["preemption"]["usd"] == float(round(3000 * 20 * price, 2))
    assert causes["preemption"]["gpu_hours"] == pytest.approx(3000 * 20 / H, abs=1e-4)
    assert causes["requeued by a person or by the job itself"]["jobs"] == [10, 11, 12]
    assert (causes["lab-1-2 failed"]["usd"], causes["lab-1-2 failed"]["jobs"]) == (8.0, [50])
    assert sum(cause["gpu_hours"] for cause in causes.values()) == pytest.approx(
        found["total"]["lost_gpu_hours"], abs=1e-3
    )
    theirs = await told(server, "vera", "lead")
    assert "lab-1-2 failed" not in {cause["what"] for cause in theirs["causes"]}


async def test_idle_time_is_reported_separately_for_notebooks(server: Server, accounting: Accounting) -> None:
    await machines(server, 2)
    accounting.away = True
    at(server, 40 * H)
    await put(
        server, *(run(100 + i, 30 * i, 30 * i + 25, gpus=1) for i in range(200)), run(7, 0, 10 * H, nodes=("lab-1-2",))
    )
    await idled(server, *((100 + i, 30 * i + 25, 20) for i in range(200)), (7, 10 * H, 5 * H))
    at(server, -60)
    await server.store.jobs.record(
        "lab", 7, person="alice", user="alice", kind="notebook", request={}, facts={}, audit={"job": 7}
    )
    at(server, 40 * H)
    found = await told(server)
    causes = {one["kind"]: one for one in found["causes"] if one["kind"] != "queue"}
    await each_leads_to_its_runs(await server.client(), causes.values())
    assert (causes["notebook"]["gpu_hours"], causes["notebook"]["usd"], causes["notebook"]["jobs"]) == (40.0, 40.0, [7])
    assert causes["idle"]["gpu_hours"] == pytest.approx(200 * 20 / H, abs=1e-4)
    assert causes["idle"]["usd"] == pytest.approx(200 * 20 / H, abs=0.005)
    assert len(causes["idle"]["jobs"]) == 5
    assert 7 not in causes["idle"]["jobs"]
    paid = await got(await server.client(), "chargeback?period=2026-10")
    assert causes["notebook"]["usd"] + causes["idle"]["usd"] == pytest.approx(
        sum(one["allocated_idle_usd"] for one in paid["teams"]), abs=0.011
    )


async def test_requeued_work_is_attributed_to_the_nearest_incident(server: Server, accounting: Accounting) -> None:
    """Older ones than anybody would page through, and one at a month's end that took work of both months."""
    await machines(server, 2)
    accounting.away = True
    at(server, MONTH_S + 5 * H)
    both = {"state": "REQUEUED", "gpus": 8}
    await put(
        server,
        run(1, 0, H, **both), run(2, 0, H, **both, nodes=("lab-1-2",)), run(3, 2 * H, 3 * H, **both),
        run(9, MONTH_S - H, MONTH_S + H, **both),
    )  # fmt: skip
    await incident(server, "lab-1-1", "XID 79", 1, at=H + 20)
    await incident(server, "lab-1-2", "XID 48", 1, 2, at=H + 90)
    await incident(server, "lab-1-1", "XID 94", 9, at=MONTH_S + H + 5)
    await incident(server, "lab-1-1", "XID 13", 3, at=5 * H)  # not what ended it
    for _ in range(30):
        await incident(server, "lab-1-2", "no answer", at=6 * H)
    found = [one for one in (await told(server))["causes"] if one["kind"] != "queue"]
    causes = {one["what"]: (one["usd"], one["jobs"]) for one in found}
    assert causes == {
        "XID 79 on lab-1-1": (8.0, [1]), "XID 48 on lab-1-2": (8.0, [2]), "XID 94 on lab-1-1": (8.0, [9]),
        "requeued by a person or by the job itself": (8.0, [3]),
    }  # fmt: skip
    november = {one["what"]: one["usd"] for one in (await told(server, month="2026-11"))["causes"] if one["jobs"]}
    assert november == {"XID 94 on lab-1-1": 8.0}


async def test_cause_costs_match_chargeback_across_prices_groups_and_teams(
    server: Server, accounting: Accounting
) -> None:
    await machines(server, 2)
    accounting.away = True
    await server.store.prices.record(
        "lab",
        [NodePrice("main", float(OCTOBER.start + at), Decimal(usd)) for at, usd in ((10 * H, "80"), (20 * H, "1.25"))],
    )
    at(server, 60 * H)
    runs = []
    for i in range(120):
        state = ("NODE_FAIL", "PREEMPTED", "REQUEUED", "COMPLETED")[i % 4]
        nodes = (f"lab-1-{i % 2 + 1}",) if i % 5 else ("lab-1-1", "lab-1-2")
        team, user = (("vision", "alice"), ("speech", "sam"))[i % 3 > 1]
        runs.append(run(i + 1, i * 1300, i * 1300 + 977 + i, state=state, nodes=nodes, gpus=2, team=team, user=user))
    await put(server, *runs)
    for i in range(0, 120, 3):
        await idled(server, (i + 1, i * 1300 + 977 + i, 300))
        if i % 2:
            await incident(server, "lab-1-1", f"XID {i % 4}", i + 1, at=i * 1300 + 977 + i)
    for person, role in (("ann", "admin"), ("vera", "lead")):
        found = await told(server, person, role)
        paid = (await got(await server.client(person, role), "chargeback?period=2026-10"))["teams"]
        causes = [one for one in found["causes"] if one["kind"] not in ("queue", "idle")]
        assert len(causes) > 3
        assert sum(cause["gpu_hours"] for cause in causes) == pytest.approx(found["total"]["lost_gpu_hours"], abs=1e-3)
        assert sum(cause["usd"] for cause in causes) == pytest.approx(
            sum(cause["lost_usd"] for cause in paid), abs=0.05
        )
        [idle] = [one for one in found["causes"] if one["kind"] == "idle"]
        assert idle["usd"] == pytest.approx(sum(one["allocated_idle_usd"] for one in paid), abs=0.03)
        assert idle["gpu_hours"] == found["total"]["idle_gpu_hours"]
        await each_leads_to_its_runs(await server.client(person, role), [*causes, idle])


async def each_leads_to_its_runs(client: httpx.AsyncClient, causes: Any) -> None:
    """Runs that lie in the month as a whole."""
    page = (await client.get("/clusters/lab/costs?section=goodput&period=2026-10")).text
    for number, one in enumerate(causes):
        link = urlencode({"cause": one["what"]})
        runs = (await got(client, f"usage/runs?start=2026-10&limit=1000&{link}"))["runs"]
        if one["kind"] in ("idle", "notebook"):  # what was lost did not idle as well
            gpu_s = sum(run["gpus"] * min(run["idle_s"], run["elapsed_s"] - run["lost_s"]) for run in runs)
        else:
            gpu_s = sum(run["gpus"] * run["lost_s"] for run in runs)
        assert gpu_s / H == pytest.approx(one["gpu_hours"], abs=1e-3), one["what"]
        assert set(one["jobs"]) <= {run["job"] for run in runs}
        assert link in page
        if number % 4:
            continue
        behind = (await client.get(f"/clusters/lab/costs?section=runs&period=2026-10&{link}")).text
        assert f"{one['gpu_hours']:,.2f} GPU-hours · {one['usd']:,.2f} USD lost to this cause" in behind


async def test_checkpoint_cause_sums_all_slow_jobs(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    accounting.runs = [run(1 + i, 60 * i, 60 * i + 50) for i in range(250)]
    server.backend.answers["checkpoint_stats"] = {1 + i: CheckpointStats(10, 5.0 + (i == 99), 50.0) for i in range(250)}
    at(server, 10 * H)
    await run_billing_round(server.state, cluster)
    found = await told(server)
    [cause] = [one for one in found["causes"] if one["kind"] == "checkpoints"]
    assert cause["gpu_hours"] == pytest.approx((250 * 5 + 1) * 8 / H, abs=0.01)
    assert cause["usd"] == pytest.approx((250 * 5 + 1) / H * 8, abs=0.01)
    assert cause["jobs"][0] == 100
    assert [one["job"] for one in found["checkpoints"]][:2] == [100, 1]
    assert len(found["checkpoints"]) == 100
    page = await got(
        await server.client(), "usage/runs?start=2026-10&limit=1000&cause=training+paused+to+write+checkpoints"
    )
    assert len(page["runs"]) == 250


async def test_run_list_refuses_an_unknown_cause(server: Server) -> None:
    at(server, H)
    answer = await (await server.client()).get(f"{V1}/usage/runs?cause=XID+79+on+lab-1-1")
    assert (answer.status_code, "nothing was lost to 'XID 79 on lab-1-1'" in answer.text) == (400, True)
    queue = await (await server.client()).get(f"{V1}/usage/runs", params={"cause": api_causes.QUEUE})
    waited = await (await server.client()).get(f"{V1}/usage/runs?waited=1")
    assert (queue.status_code, queue.json()["runs"]) == (200, waited.json()["runs"])


def test_named_jobs_are_unique_and_exclude_zero_cost() -> None:
    from fractions import Fraction

    runs = [(Fraction(9), 1), (Fraction(8), 1), (Fraction(3), 2), (Fraction(3), 4), (Fraction(0), 5)]
    assert api_causes._named(runs) == (1, 2, 4)


async def test_runs_on_nodes_without_a_price_count_as_productive(server: Server, accounting: Accounting) -> None:
    """Nodes that the file names no more: no group of theirs has a price, and the report is made of stretches of one price."""
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    accounting.runs = [run(7, 0, 3600), run(8, 0, 3600, nodes=("gone-1-1",))]
    at(server, 10 * H)
    await run_billing_round(server.state, cluster)
    good = await got(await server.client(), "goodput?period=2026-10")
    [usage] = (await got(await server.client(), "usage?period=2026-10"))["rows"]
    assert good["total"]["productive_gpu_hours"] == usage["gpu_hours"] == 16.0
    assert good["total"]["waited_gpu_hours"] == pytest.approx(16 / 60, abs=1e-4)
