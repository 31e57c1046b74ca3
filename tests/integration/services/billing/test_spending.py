"""Costs by day sum to the invoice, and budgets burn down by the usage of their teams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from headway.billing.periods import month_period
from headway.domain.teams import Budget
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.monthly_bill import load_bill
from headway.services.billing.reports.report_scope import ReportScope, load_billed_cluster
from headway.services.billing.reports.spending import load_burn_downs, load_spending
from tests.support.billing.billing_cluster import NOVEMBER, OCTOBER, TEAMS, UTC, Accounting, H, at, lab, machines, run
from tests.support.servers.server_fakes import Server

DAY = 24 * H


@pytest.fixture
def accounting() -> Accounting:
    return Accounting()


@pytest.fixture
async def server(tmp_path: Path, accounting: Accounting) -> AsyncIterator[Server]:
    """Two machines from the second day on, and two jobs."""
    async with lab(tmp_path, accounting) as made:
        await machines(made, 2, began=DAY)
        accounting.runs = [
            run(1, DAY, DAY + 6 * H), run(2, 2 * DAY + 20 * H, 3 * DAY + 4 * H, team="speech", user="sam"),
        ]  # fmt: skip
        yield made


async def test_days_sum_to_the_invoice_with_a_forecast(server: Server) -> None:
    at(server, 4 * DAY + 12 * H)
    billed = await load_billed_cluster(server.state, "lab")
    await refresh_ledger(server.state, billed)
    found = await load_spending(server.state, ReportScope(billed, OCTOBER, None))
    invoice = (await load_bill(server.state, billed, OCTOBER)).chargeback.invoice
    assert [usd for _, usd, _ in found.days] == [0, 38400, 38400, 38400, 19200]  # two nodes at 8 USD an hour
    assert [used for _, _, used in found.days] == [0, 4800, 3200, 3200, 0]
    assert found.total_cents == invoice.total_cents == sum(usd for _, usd, _ in found.days)
    assert found.forecast_cents == 30 * 38400
    assert [(one.month.name, one.cents, one.over) for one in found.months] == [("2026-10", found.total_cents, False)]
    mine = await load_spending(server.state, ReportScope(billed, OCTOBER, ("speech",)))
    assert [usd for _, usd, _ in mine.days] == [0, 0, 3200, 3200, 0]
    assert not mine.of_invoice


async def test_forecast_counts_days_of_the_last_week_without_machines(server: Server) -> None:
    await server.store.machine_lifetimes.end_all("lab", OCTOBER.start + 5 * DAY)
    hour = NOVEMBER.start - OCTOBER.start + 19 * DAY + H
    await machines(server, 2, began=hour - H)
    at(server, hour)
    billed = await load_billed_cluster(server.state, "lab")
    found = await load_spending(server.state, ReportScope(billed, NOVEMBER, None))
    assert found.total_cents == 1600
    assert found.forecast_cents == 1600 + round(1600 / (7 * 24) * (11 * 24 - 1))


@pytest.mark.parametrize("teams", [None, ("speech",)])
async def test_forecast_of_a_new_month_continues_the_month_before(
    server: Server, accounting: Accounting, teams: tuple[str, ...] | None
) -> None:
    month = NOVEMBER.start - OCTOBER.start
    accounting.runs = [run(3, month - DAY, 0, team="speech", user="sam")]
    at(server, month + H)
    billed = await load_billed_cluster(server.state, "lab")
    await refresh_ledger(server.state, billed)
    await server.store.machine_lifetimes.end_all("lab", NOVEMBER.start + H // 2)
    found = await load_spending(server.state, ReportScope(billed, NOVEMBER, teams))
    spent = (
        8 * 25 if teams else 16 * (7 * 24 - 1) + 8
    )  # the job of a day and an hour; two machines, which ended after half an hour
    assert found.total_cents == 800
    assert found.forecast_cents == 800 + round(Fraction(100 * spent, 7 * 24) * (30 * 24 - 1))


async def test_month_is_compared_with_the_months_before(server: Server) -> None:
    at(server, NOVEMBER.start - OCTOBER.start + 15 * DAY)
    billed = await load_billed_cluster(server.state, "lab")
    found = await load_spending(server.state, ReportScope(billed, NOVEMBER, None))
    assert [(one.month.name, one.cents, one.over) for one in found.months] == [
        ("2026-11", 15 * 38400, False), ("2026-10", 30 * 38400, True),
    ]  # fmt: skip
    assert found.forecast_cents == 30 * 38400
    assert len(found.before) == 31
    assert found.months[1].change is None


async def test_budget_burns_down_by_day(server: Server) -> None:
    budgets = Budget("gpu_hours", Decimal(100), "month", 0.8, True), Budget("usd", Decimal(1000), "year", 0.8, True)
    server.backend.clusters["lab"]["teams"] = tuple(
        one.__class__(one.name, one.users, one.share, leads=one.leads, budget=budget)
        for one, budget in zip(TEAMS, budgets, strict=True)
    )
    await server.apply("lab", note="budgets")
    at(server, 4 * DAY)
    billed = await load_billed_cluster(server.state, "lab")
    await refresh_ledger(server.state, billed)
    vision, speech = await load_burn_downs(server.state, billed, None)
    assert [int(step.amount) for step in vision.steps] == [0, 48, 0, 0, 0]
    assert (vision.budget.used, vision.spent_at) == (48, OCTOBER.start + 4 * DAY + 374400)
    assert float(sum(step.amount for step in speech.steps)) == speech.budget.used == 64
    assert len(speech.steps) == 40, "a year has a step for each week"
    assert speech.spent_at is None
    assert [one.budget.team for one in await load_burn_downs(server.state, billed, ("speech",))] == ["speech"]


async def test_budgets_that_begin_on_the_same_day_have_their_own_steps(server: Server) -> None:
    budgets = Budget("usd", Decimal(100), "month", 0.8, True), Budget("usd", Decimal(1000), "year", 0.8, True)
    server.backend.clusters["lab"]["teams"] = tuple(
        one.__class__(one.name, one.users, one.share, leads=one.leads, budget=budget)
        for one, budget in zip(TEAMS, budgets, strict=True)
    )
    await server.apply("lab", note="budgets")
    january = month_period("2027-01", UTC).start - OCTOBER.start
    at(server, january + 9 * DAY + H)
    month, year = await load_burn_downs(server.state, await load_billed_cluster(server.state, "lab"), None)
    assert month.budget.start == year.budget.start
    assert (len(month.steps), len(year.steps)) == (10, 2)
