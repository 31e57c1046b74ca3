"""Budgets warn, hold jobs and release them at their levels, and Slurm receives the matching commands."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.domain.slurm.accounts import AccountShare
from headway.domain.teams import Budget, GpuHourCap
from headway.errors import Unreachable
from headway.services.billing.billing_round import run_billing_round
from tests.support.billing.billing_cluster import (
    NOVEMBER,
    OCTOBER,
    TEAMS,
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


async def test_budget_warns_then_holds_team_jobs_until_the_next_period(server: Server, accounting: Accounting) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(100), "month", 0.8, True)), TEAMS[1])
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]
    told: list[str] = []
    for hours in (5, 11, 12, 13, 14):
        at(server, hours * H)
        await run_billing_round(server.state, cluster)
        told.append((await server.store.budgets.get("lab", "vision", OCTOBER.start))[0])
    assert told == ["ok", "warn", "warn", "over", "over"]
    assert held(server) == [False, True], "at a period's first look Slurm is told in any case"
    warned = [one.kind for call in server.backend.named("send_alerts") for one in call[-1]]
    assert warned == ["Budget", "Budget"]
    for person, role in (("victor", "viewer"), ("sam", "member"), ("ann", "admin")):
        assert "are used" not in (await (await server.client(person, role)).get("/clusters/lab")).text
    vera = await server.client("vera", "lead")
    note = (await vera.get("/clusters/lab/costs/note")).text
    assert ("The budget of vision is spent." in note, "Its jobs wait for the next month." in note) == (True, True)
    assert 'hx-get="/clusters/lab/costs/note"' in (await vera.get("/clusters/lab/queue")).text
    assert "vision" not in (await (await server.client("sam", "member")).get("/clusters/lab/costs/note")).text
    [mine] = await got(vera, "budgets")
    assert (mine["level"], mine["held_back"], mine["used"], mine["left"]) == ("over", True, 112.0, 0.0)
    accounting.runs = [run(1, 0, 14 * H)]
    at(server, NOVEMBER.start - OCTOBER.start + 60)
    await run_billing_round(server.state, cluster)
    assert held(server) == [False]


async def spent(server: Server, accounting: Accounting) -> Cluster:
    """The budget of vision is, and its jobs are held back."""
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(100), "month", 0.8, True)), TEAMS[1])
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]
    at(server, 13 * H)
    await run_billing_round(server.state, cluster)
    assert held(server) == [True]
    return cluster


def held(server: Server) -> list[bool]:
    """What Slurm was told of vision's jobs since this was asked last."""
    told = [call[1:] for call in server.backend.named("hold_team_jobs")]
    server.backend.calls[:] = [call for call in server.backend.calls if call[0] != "hold_team_jobs"]
    assert all(team == "vision" for team, _ in told)
    return [on for _, on in told]


async def test_removing_a_budget_releases_its_team_once_slurm_answers(server: Server, accounting: Accounting) -> None:
    await spent(server, accounting)
    server.backend.clusters["lab"]["teams"] = TEAMS
    await server.apply("lab", note="no budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    server.backend.answers["hold_team_jobs"] = Unreachable("sacctmgr does not answer")
    await run_billing_round(server.state, cluster)
    assert (held(server), await server.store.budgets.capped_teams("lab")) == ([False], {"vision"})
    server.backend.answers["hold_team_jobs"] = None
    for _ in range(2):
        await run_billing_round(server.state, cluster)
    assert (held(server), await server.store.budgets.capped_teams("lab")) == ([False], frozenset())


async def test_restored_accounting_gets_team_holds_sent_again(server: Server, accounting: Accounting) -> None:
    """Its accounting is as it was when the backup was made: who is spent may start jobs there, and who is not may be held."""
    cluster = await spent(server, accounting)
    for team, moment in (("vision", 12 * H), ("speech", 2 * H)):
        await server.store.gpu_hour_cap_resets.record("lab", team, OCTOBER.start + moment)
    await server.store.gpu_hour_cap_resets.revert_to("lab", OCTOBER.start + 10.0 * H)
    assert await server.store.gpu_hour_cap_resets.of_cluster("lab") == {
        "vision": OCTOBER.start + 10.0 * H,
        "speech": OCTOBER.start + 2.0 * H,
    }
    for _ in range(2):
        await run_billing_round(server.state, cluster)
    assert held(server) == [True]
    await server.store.gpu_hour_cap_resets.revert_to("lab", OCTOBER.start + 10.0 * H)
    server.backend.answers["hold_team_jobs"] = Unreachable("sacctmgr does not answer")
    accounting.runs = [run(1, 0, 12 * H + 60)]
    await run_billing_round(server.state, cluster)
    server.backend.answers["hold_team_jobs"] = None
    await run_billing_round(server.state, cluster)
    assert held(server) == [False, False], "told until it was heard"


async def test_recreated_cluster_holds_teams_with_a_spent_budget(server: Server, accounting: Accounting) -> None:
    cluster = await spent(server, accounting)
    await server.store.clusters.delete("lab", delete_data=True)
    assert await server.store.budgets.capped_teams("lab") == frozenset()
    await server.apply("lab", note="again")
    await run_billing_round(server.state, cluster)
    assert held(server) == [True]


async def test_budget_alert_is_sent_once_despite_failures_and_recounts(server: Server, accounting: Accounting) -> None:
    teams = (replace(TEAMS[0], budget=Budget("usd", Decimal(100), "month", 0.8, True)), TEAMS[1])
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 1)
    accounting.runs = [run(1, 0, 0)]

    def sent() -> list[str]:
        return [news.title for call in server.backend.named("send_alerts") for news in call[1]]

    at(server, 11 * H)
    server.backend.answers["send_alerts"] = Unreachable("Alertmanager on lab-head does not answer")
    await run_billing_round(server.state, cluster)
    server.backend.answers["send_alerts"] = None
    del server.backend.calls[:]
    at(server, 11 * H + 60)
    await run_billing_round(server.state, cluster)
    await server.store.runs.collect_again("lab")  # all is counted again, and comes to the same level again
    await server.store.budgets.record("lab", "vision", OCTOBER.start, "ok", capped=False)
    at(server, 11 * H + 120)
    await run_billing_round(server.state, cluster)
    assert sent() == ["lab: the budget of vision is soon spent"]
    at(server, 13 * H)
    await run_billing_round(server.state, cluster)
    at(server, 14 * H)
    await run_billing_round(server.state, cluster)
    assert sent() == ["lab: the budget of vision is soon spent", "lab: the budget of vision is spent"]
    [last] = server.backend.named("send_alerts")[-1][1]
    assert last.text == "team vision: 104.00 of 100 USD a month are used: its jobs wait for the next month"


async def test_weekly_summary_reports_budget_left_at_the_end_of_the_week(
    server: Server, accounting: Accounting
) -> None:
    """It is told on the next Monday, when a budget by the week is whole again and the month goes on."""
    limits = (Budget("gpu_hours", Decimal(500), "week", 0.8, True), Budget("usd", Decimal(1000), "month", 0.8, True))
    teams = tuple(replace(team, budget=budget) for team, budget in zip(TEAMS, limits, strict=True))
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    cluster = (await server.state.clusters.get("lab"))[1]
    await machines(server, 2)
    monday, end = 4 * 24 * H, 11 * 24 * H  # the 5th and the 12th of October
    speech = {"team": "speech", "user": "sam", "nodes": ("lab-1-2",)}
    accounting.runs = [run(1, monday, monday + 20 * H), run(2, end - 10 * H, 0), run(3, end - 5 * H, 0, **speech)]
    at(server, end + 2 * H)
    await run_billing_round(server.state, cluster)
    news = {one.key: one.text for call in server.backend.named("send_alerts") for one in call[-1]}["week/2026-W41"]
    assert "vision: 240.00 GPU-hours" in news
    assert "budget of vision: 260.00 of 500.00 GPU-hours a week were left" in news
    assert "budget of speech: 960.00 of 1,000.00 USD a month were left" in news


async def test_gpu_hour_cap_counts_usage_since_its_last_refill(server: Server, accounting: Accounting) -> None:
    """What Slurm says of the account fades; the cap is on the QOS, whose usage does not."""
    cap = GpuHourCap(Decimal(720), "month")
    server.backend.clusters["lab"]["teams"] = (replace(TEAMS[0], gpu_hours=cap), TEAMS[1])
    await server.apply("lab", note="cap")
    server.backend.answers["shares"] = (
        AccountShare("vision", 0.75, 0.9, 0.1, 31.4),
        AccountShare("speech", 0.25, 0.1, 0.9, 2.0),
    )
    await server.store.gpu_hour_cap_resets.record("lab", "vision", float(OCTOBER.start + 10 * H))
    accounting.runs = [run(1, 5 * H, 15 * H), run(2, 20 * H, 30 * H)]
    at(server, 40 * H)
    await run_billing_round(server.state, (await server.state.clusters.get("lab"))[1])

    async def told(name: str, role: str) -> list[tuple[float | None, str, float | None]]:
        found = (await got(await server.client(name, role), "teams"))["teams"]
        of = {one["name"]: (one["gpu_hours"], one["gpu_hours_cap"], one["gpu_hours_of_cap"]) for one in found}
        return [of["vision"], of["speech"]]

    assert await told("ann", "admin") == [(31.4, "720 a month", 8 * 15.0), (2.0, "", None)]
    assert await told("sam", "member") == [(None, "720 a month", None), (2.0, "", None)]
    page = (await (await server.client()).get("/clusters/lab/teams")).text
    assert ("120.0 of 720 a month" in page, "31.4 of" in page) == (True, False)
