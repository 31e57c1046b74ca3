"""The API and the alert channels report energy, lost work, budgets, weekly summaries and capacity correctly."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pytest

from headway.cluster.monitoring.metric_queries import MetricRow
from headway.domain.billing.ledger import CheckpointStats, NodePrice
from headway.domain.cluster import Cluster
from headway.domain.teams import Budget
from headway.errors import HeadwayError
from headway.jobs.view.ettr import EffectiveTime
from headway.services.billing.billing_round import run_billing_round
from tests.support.billing.billing_cluster import (
    OCTOBER,
    TEAMS,
    V1,
    Accounting,
    H,
    accounting,
    at,
    got,
    machines,
    run,
    server,
)
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_energy_and_idle_time_are_measured_once(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(7, 0, 0)]
    start = OCTOBER.start

    def metrics(_: Cluster, __: Any, since: float, until: float, step: int) -> tuple[MetricRow, ...]:
        moments = range(int(since), int(until) + 1, step)
        use = tuple((float(moment), 0.0 if moment < start + 600 else 90.0) for moment in moments)
        power = tuple((float(moment), 5600.0) for moment in moments)
        return (MetricRow("use", "", {"hpc_job": "7"}, use), MetricRow("power", "", {"hpc_job": "7"}, power))

    server.backend.answers["query_metrics"] = metrics
    for moment in (300, 300, 900, 1220):
        at(server, moment)
        await run_billing_round(server.state, cluster)
    [found] = await server.store.usage.runs_of_job("lab", 7)
    assert (found.measured_s, found.energy_j) == (1200, 1200 * 5600)
    assert found.idle_s == 9 * 60
    ann = await server.client()
    answer = await got(ann, "energy?period=2026-10")
    assert answer["total"]["measured_kwh"] == pytest.approx(1200 * 5600 / 3.6e6 * 1.3, rel=1e-3)
    assert answer["total"]["estimated_kwh"] == pytest.approx((20 * 8 * 700 + 1220 * 64 * 5) / 3.6e6 * 1.3, rel=1e-2)
    good = await got(ann, "goodput?period=2026-10")
    assert good["total"]["idle_gpu_hours"] == pytest.approx(8 * 540 / 3600, rel=1e-3)
    mine = await got(ann, "goodput/jobs/7")
    assert (mine["job"], mine["runs"]) == (7, 1)
    assert {**mine["total"], "team": ""} == good["total"]
    assert (await ann.get(f"{V1}/goodput/jobs/8")).status_code == 404
    assert [one["kind"] for one in good["causes"]] == ["idle"]


async def test_clock_jump_ahead_does_not_stop_energy_measurements(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(7, 0, 0)]
    ahead = OCTOBER.start + 365 * 24 * H

    def metrics(_: Cluster, __: Any, since: float, until: float, step: int) -> tuple[MetricRow, ...]:
        moments = [one for one in range(int(since), int(until) + 1, step) if one < ahead - H]
        return (MetricRow("power", "", {"hpc_job": "7"}, tuple((float(moment), 700.0) for moment in moments)),)

    server.backend.answers["query_metrics"] = metrics
    for moment in (620, 365 * 24 * H, 680, 800, 1220):
        at(server, moment)
        await run_billing_round(server.state, cluster)
    [found] = await server.store.usage.runs_of_job("lab", 7)
    assert (found.measured_s, found.energy_j) == (600 + 540, (600 + 540) * 700), "but for the minute it was ahead"


async def test_nodes_with_energy_counters_are_measured_others_estimated(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    cpus = cluster.group_of["lab-1-1"].plan.cpus
    half = {"gpus": 0, "cpus": cpus // 2}
    accounting.runs = [run(7, 0, 0, **half), run(8, 0, 0, team="speech", user="sam", nodes=("lab-1-2",), **half)]
    asked: list[str] = []

    def metrics(_: Cluster, queries: Any, since: float, until: float, step: int) -> tuple[MetricRow, ...]:
        asked.extend(query.text for query in queries if query.key == "nodes")
        watts = tuple((float(one), 400.0) for one in range(int(since), int(until) + 1, step))
        return (MetricRow("nodes", "", {"node": "lab-1-1"}, watts),)

    server.backend.answers["query_metrics"] = metrics
    for moment in (620, 620, 1220):
        at(server, moment)
        await run_billing_round(server.state, cluster)
    assert "node_rapl_package_joules_total" in asked[0]
    assert "node_rapl_dram_joules_total" in asked[0]
    ann = await server.client()
    answer = await got(ann, "energy?period=2026-10")
    teams = {one["team"]: one for one in answer["teams"]}
    assert teams["vision"]["measured_kwh"] == pytest.approx(1200 * 200 / 3.6e6 * 1.3, abs=1e-4)
    assert teams["vision"]["estimated_kwh"] == pytest.approx(20 * cpus / 2 * 5 / 3.6e6 * 1.3, abs=1e-4), (
        "the last seconds"
    )
    assert teams["speech"]["measured_kwh"] == 0
    assert teams["speech"]["estimated_kwh"] == pytest.approx(1220 * cpus / 2 * 5 / 3.6e6 * 1.3, abs=1e-4)
    lines = {one["job"]: one for one in (await got(ann, "usage/runs?start=2026-10-01"))["runs"]}
    assert lines[7]["energy_kwh"] == pytest.approx(teams["vision"]["kwh"], abs=1e-4)
    assert lines[8]["energy_estimated"]


async def test_lost_work_is_computed_from_reported_checkpoint_time(server: Server, accounting: Accounting) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(7, 0, 1000, state="NODE_FAIL"), run(7, 1100, 0)]
    server.backend.answers["restart_losses"] = {7: ((OCTOBER.start + 990.0, 90.0),)}
    at(server, 2000)
    await run_billing_round(server.state, cluster)
    await run_billing_round(server.state, cluster)
    first, again = await server.store.usage.runs_of_job("lab", 7)
    assert (first.lost_s, again.lost_s) == (100, 0)


async def test_checkpoint_on_preemption_warning_loses_only_its_last_seconds(
    server: Server, accounting: Accounting
) -> None:
    """What was done again within the run is not what its end took."""
    cluster = (await server.state.clusters.get("lab"))[1]
    accounting.runs = [run(7, 0, 1000, state="PREEMPTED"), run(7, 1100, 0)]
    server.backend.answers["restart_losses"] = {7: ((OCTOBER.start + 400.0, 30.0), (OCTOBER.start + 990.0, 0.0))}
    at(server, 2000)
    for _ in range(3):
        await run_billing_round(server.state, cluster)
        first, again = await server.store.usage.runs_of_job("lab", 7)
        assert (first.lost_s, again.lost_s) == (10, 0)


async def test_goodput_of_a_scripted_training_is_accurate_within_1_percent(
    server: Server, accounting: Accounting
) -> None:
    """The whole way, from a training's own reports, accounting and the GPUs' use to what is told: it waits 10 minutes, makes a
    step every 2 s, saves every 50, is killed after step 1,830, waits 5 minutes, goes on at step 1,800, and holds its GPUs
    for 20 minutes more when it is through."""
    cluster = (await server.state.clusters.get("lab"))[1]
    course = EffectiveTime()
    for step in range(1, 1831):
        course.add_report(step, OCTOBER.start + 600.0 + 2 * step)
    killed, again = 600 + 2 * 1830, 600 + 2 * 1830 + 300
    for step in range(1801, 4001):
        course.add_report(step, OCTOBER.start + again + 2.0 * (step - 1800))
    through = again + 2 * 2200
    productive_s, idle_s, lost_s, waited_s = 4000 * 2, 1200, 60, 900
    first = {"submit": OCTOBER.start, "eligible": OCTOBER.start, "state": "NODE_FAIL"}
    accounting.runs = [run(7, 600, killed, **first), run(7, again, through + 1200, eligible=OCTOBER.start + killed)]

    def metrics(_: Cluster, __: Any, since: float, until: float, step: int) -> tuple[MetricRow, ...]:
        moments = range(int(since), int(until) + 1, step)
        use = [(float(moment), 90.0 if moment <= OCTOBER.start + through else 0.0) for moment in moments]
        held = [pair for pair in use if not killed < pair[0] - OCTOBER.start <= again]
        return (MetricRow("use", "", {"hpc_job": "7"}, tuple(held)),)

    server.backend.answers |= {"query_metrics": metrics, "restart_losses": {7: tuple(course.losses)}}
    for moment in range(3600, through + 3600, 3600):
        at(server, moment)
        await run_billing_round(server.state, cluster)
    told = (await got(await server.client(), "goodput?period=2026-10"))["total"]
    gpu_hours = 8 / H
    assert told["productive_gpu_hours"] == pytest.approx(productive_s * gpu_hours, rel=0.01)
    assert told["lost_gpu_hours"] == pytest.approx(lost_s * gpu_hours, rel=0.05)
    assert told["idle_gpu_hours"] == pytest.approx(idle_s * gpu_hours, rel=0.05)
    assert told["goodput"] == pytest.approx(productive_s / (productive_s + lost_s + idle_s), rel=0.01)
    assert told["ettr"] == pytest.approx(productive_s / (productive_s + lost_s + idle_s + waited_s), rel=0.01)


async def test_loss_causes_match_chargeback_across_month_end_and_price_change(
    server: Server, accounting: Accounting
) -> None:
    await machines(server, 1)
    end = 744 * H
    accounting.runs = [run(7, end - 6 * H, end + 2 * H, state="NODE_FAIL"), run(8, 5 * H, 15 * H)]
    await server.store.prices.record("lab", [NodePrice("main", float(OCTOBER.start + 10 * H), Decimal("80"))])
    at(server, end + 10 * H)
    ann = await server.client()
    await got(ann, "usage")
    await server.store.runs.add_measurements("lab", [(8, OCTOBER.start + 15 * H, 10 * H, 5 * H, 0)], OCTOBER.start)
    for month in ("2026-10", "2026-11"):
        [team, *_] = [one for one in (await got(ann, f"chargeback?period={month}"))["teams"] if one["team"] == "vision"]
        good = await got(ann, f"goodput?period={month}")
        causes = {one["kind"]: one for one in good["causes"]}
        assert causes["fault"]["usd"] == team["lost_usd"] > 0
        assert causes["fault"]["gpu_hours"] == good["total"]["lost_gpu_hours"]
        assert causes.get("idle", {"usd": 0})["usd"] == team["allocated_idle_usd"]


async def test_goodput_reports_slow_checkpoints_and_savings_of_a_better_interval(
    server: Server, accounting: Accounting
) -> None:
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    accounting.runs = [run(7, 0, 0), run(8, 0, 0, team="speech", user="sam", nodes=("lab-1-2",))]
    server.backend.answers["checkpoint_stats"] = {
        7: CheckpointStats(100, 2000.0, 20_000.0),
        8: CheckpointStats(1, 50.0, 60.0),
    }
    at(server, 10 * H)
    await run_billing_round(server.state, cluster)
    server.backend.answers["checkpoint_stats"] = {
        7: CheckpointStats(1, 1.0, 1.0)
    }  # its reports were cut: what was known stays
    at(server, 10 * H + 60)
    await run_billing_round(server.state, cluster)
    at(server, 10 * H)
    ann, sam = await server.client(), await server.client("sam", "member")
    good = await got(ann, "goodput?period=2026-10")
    # 20 s every 200 s: a tenth of ten hours of one node at 8 USD
    [cause] = [one for one in good["causes"] if one["kind"] == "checkpoints"]
    assert (cause["usd"], cause["gpu_hours"], cause["jobs"]) == (8.0, 8.0, [7])
    [told] = good["checkpoints"]
    year_s = 365 * 24 * H  # no node ever failed: once a year
    best = (2 * year_s * 20) ** 0.5
    assert (told["job"], told["write_s"], told["now_s"]) == (7, 20.0, 200.0)
    assert told["best_s"] == pytest.approx(best, abs=0.1)
    saves = 20 / 200 + 200 / (2 * year_s) - 20 / best - best / (2 * year_s)
    assert told["saves_usd"] == pytest.approx(80 * saves, abs=0.01)
    page = (await ann.get("/clusters/lab/costs?section=goodput&period=2026-10")).text
    assert ("Checkpoint intervals to improve" in page, f"{told['saves_usd']:,.2f}" in page) == (True, True)
    measured = await got(ann, "goodput/checkpoints?job=7")
    assert (measured["best_s"], measured["write_s"]) == (told["best_s"], 20.0)
    assert (await got(sam, "goodput?period=2026-10"))["checkpoints"] == []
    assert (await sam.get(f"{V1}/goodput/checkpoints?job=7")).status_code == 400
    assert (await got(sam, "goodput/checkpoints?every_s=60&write_s=20&nodes=16"))["best_s"] > 60


async def test_weekly_summary_is_sent_once_and_matches_usage_and_goodput(
    server: Server, accounting: Accounting
) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(1000), "month", 0.8, True)), TEAMS[1])
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    monday = 4 * 24 * H  # 2026-10-05, in October's seconds
    accounting.runs = [
        run(1, monday, monday + 10 * H),
        run(2, monday, monday + 5 * H, team="speech", user="sam", nodes=("lab-1-2",), gpus=4, state="NODE_FAIL"),
        run(3, monday - 9 * H, monday - 8 * H),  # of the week before
    ]
    end = monday + 7 * 24 * H
    accounting.away = True
    at(server, end + 2 * H)
    with pytest.raises(HeadwayError):
        await run_billing_round(server.state, cluster)
    assert server.backend.named("send_alerts") == []  # not before accounting has told all of the week
    accounting.away = False
    for hours in (3, 4, 30):
        at(server, end + hours * H)
        await run_billing_round(server.state, cluster)
    [(_, [news])] = server.backend.named("send_alerts")
    ann = await server.client()
    used = await got(ann, f"usage?start={OCTOBER.start + monday}&end={OCTOBER.start + end}")
    share = {one["team"]: one["goodput"] for one in (await got(ann, "goodput?period=2026-10"))["teams"]}
    assert (news.key, news.title) == ("week/2026-W41", "lab: week 2026-W41")
    assert news.text.splitlines()[:2] == [
        f"{row['by']['team']}: {row['gpu_hours']:,.2f} GPU-hours, {row['usd']:,.2f} USD, "
        f"goodput {100 * share[row['by']['team']]:.1f} %"
        for row in used["rows"]
    ]
    assert "all: 100.00 GPU-hours, 100.00 USD, goodput 80.0 %" in news.text
    assert "lost: 20.00 USD, 20.00 GPU-hours: lab-1-2 failed" in news.text
    assert "budget of vision: 912.00 of 1,000.00 USD a month were left" in news.text


async def test_capacity_reports_hourly_use_and_wait_times(server: Server, accounting: Accounting) -> None:
    await machines(server, 2, ended=4 * H)
    accounting.runs = [run(1, H, 3 * H), run(2, 0, 4 * H, nodes=("lab-1-2",), gpus=4, eligible=OCTOBER.start - 600)]
    at(server, 5 * H)
    ann = await server.client()
    answer = await got(ann, "capacity?period=2026-10")
    [kind] = answer["types"]
    assert kind["gpu_type"] == "h100"
    assert [(hour["allocated"], hour["present"]) for hour in kind["hours"][:5]] == [
        (4.0, 16.0), (12.0, 16.0), (12.0, 16.0), (4.0, 16.0), (0.0, 0.0),
    ]  # fmt: skip
    assert kind["utilisation"] == 0.5
    assert {one["size"]: (one["runs"], one["p50_s"]) for one in answer["waits"]} == {"2 to 8": (2, 60)}


async def test_costs_pages_show_the_same_figures_as_the_api(server: Server, accounting: Accounting) -> None:
    await machines(server, 2, ended=100 * H)
    accounting.runs = [
        run(1, 0, 10 * H),
        run(2, 0, 5 * H, team="speech", user="sam", nodes=("lab-1-2",), state="NODE_FAIL"),
    ]
    at(server, 200 * H)
    ann, vera = await server.client(), await server.client("vera", "lead")

    async def shown(client: httpx.AsyncClient, section: str, more: str = "") -> str:
        answer = await client.get(f"/clusters/lab/costs?section={section}&period=2026-10{more}")
        assert answer.status_code == 200, answer.text
        return answer.text

    used = await shown(ann, "usage")
    assert "80.00" in used
    assert "section=runs&amp;period=2026-10&amp;team=speech" in used
    assert "1,600.00" in await shown(ann, "invoice")
    paid = await got(ann, "chargeback?period=2026-10")
    page = await shown(ann, "chargeback")
    assert all(f"{one['total_usd']:,.2f}" in page for one in paid["teams"])
    assert "lab-1-2 failed" in await shown(ann, "goodput")
    assert 'href="/clusters/lab/jobs/2"' in await shown(ann, "runs", "&team=speech&lossy=1")
    for section in ("budgets", "energy", "capacity"):
        assert "Costs" in await shown(ann, section)
    instead = await shown(vera, "invoice")  # not hers: the spending of her own team
    assert ("Spending" in instead, "speech" in instead, "1,600.00" in instead) == (True, False, False)
    theirs = await shown(vera, "usage")
    assert ("vision" in theirs, "speech" in theirs, "1,600.00" in theirs) == (True, False, False)
    assert "speech" not in await shown(vera, "chargeback")


async def test_job_goodput_excludes_earlier_job_with_the_same_id(server: Server, accounting: Accounting) -> None:
    """The cluster was taken down with its data and made again: its jobs are numbered from 1 once more."""
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(7, 0, H, state="NODE_FAIL"), run(7, 2 * H, 3 * H), run(8, H, 2 * H)]
    server.backend.answers |= {"checkpoint_stats": {7: CheckpointStats(50, 500.0, 5000.0)}, "take_down": ()}
    at(server, 4 * H)
    await run_billing_round(server.state, cluster)
    ann = await server.client()
    assert (await got(ann, "goodput/jobs/7"))["runs"] == 2
    assert (await ann.post(f"{V1}/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    assert (await got(ann, "goodput/jobs/7"))["runs"] == 2, "it is gone, and there is no other"
    at(server, 5 * H)
    await server.apply("lab", note="again")
    server.backend.answers["checkpoint_stats"] = {7: CheckpointStats(3, 3.0, 30.0)}
    accounting.runs = [run(7, 5 * H, 7 * H, team="speech", user="sam")]
    at(server, 8 * H)
    await run_billing_round(server.state, cluster)
    found = await got(ann, "goodput/jobs/7")
    assert (found["user"], found["runs"], found["total"]["productive_gpu_hours"]) == ("sam", 1, 16.0)
    assert [one["user"] for one in (await got(ann, "usage/runs?job=7"))["runs"]] == ["sam"]
    assert (await got(ann, "goodput/jobs/8"))["runs"] == 1, "the new one has none of this number yet"
    assert (await got(ann, "goodput/checkpoints?job=7"))["write_s"] == 1.0
    vera = await server.client("vera", "lead")
    assert (await vera.get(f"{V1}/goodput/jobs/7")).status_code == 404, "it is another team's now"
