"""In a browser, an invoice prints as one sheet, and a note above the queue shows when a budget is nearly spent."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from playwright.sync_api import Page, expect

from headway.domain.billing.ledger import GroupAllocation, JobRun
from headway.domain.teams import Budget
from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_invoice_prints_without_navigation(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/costs?section=invoice")
    total = page.get_by_role("row", name="total")
    around = [page.locator(one) for one in (".bar", ".strip", ".costs__sections", ".head__end", "a[download]")]
    for one in around:
        expect(one.first).to_be_visible()
    page.emulate_media(media="print")
    for one in around:
        expect(one.first).to_be_hidden()
    expect(total).to_be_visible()
    expect(page.get_by_role("row", name="spare")).to_be_visible()


def test_day_in_the_capacity_chart_links_to_its_runs(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/costs?section=capacity")
    page.locator(".heat__map a").first.dispatch_event("click")
    expect(page.get_by_role("link", name="All runs")).to_be_visible()
    expect(page.get_by_role("heading", name="Runs of gpu h100 from")).to_be_visible()


def test_forecast_draws_past_band_and_all_gpus(demo: Site, page: Page) -> None:
    today = int(demo.state.clock()) // 86400 * 86400
    runs = []
    for day in range(15, 80):
        start, hours = today - day * 86400, (9, 11, 10, 8, 12, 3, 2)[day % 7]
        run = JobRun(
            5000 + day, start, start + hours * 3600, start, start - 120, "vision", "alice", "train", "vision", "COMPLETED",
            ("demo-1-1",), 8, 64, 1, None, 0, 0,
        )  # fmt: skip
        runs.append((run, [GroupAllocation("main", ("demo-1-1",), "h100", 8, 64, 8, 8)], 0))
    older = demo.state.store.machine_lifetimes.record("demo", [("demo-1-9", "main")], [], [], today - 80 * 86400)
    demo.run(older)
    demo.run(demo.state.store.runs.save("demo", runs))
    demo.goto(page, "/clusters/demo/costs?section=forecast")
    chart = page.get_by_role("img", name="GPU-hours by day, used and forecast")
    expect(chart).to_be_visible()
    for drawn, count in ((".plot__line", 2), (".plot__band", 1), (".plot__level", 1)):
        expect(chart.locator(drawn)).to_have_count(count)
    expect(page.get_by_text("not expected")).to_be_visible()
    page.get_by_text("Table of weeks").click()
    expect(page.get_by_role("table").last.get_by_role("row")).to_have_count(14)  # thirteen weeks and the head


def test_spent_budget_is_shown_above_the_queue_to_its_team(demo: Site, page: Page) -> None:
    now, made = int(demo.state.clock()), demo.backend.clusters["demo"]
    budget = Budget("gpu_hours", Decimal("0.000001"), "year", 0.8, True)
    demo.backend.clusters["demo"] = {**made, "teams": tuple(replace(one, budget=budget) for one in made["teams"])}
    begun = now - 7200
    run = JobRun(
        900, begun, 0, begun, begun, "vision", "alice", "train", "vision", "RUNNING", ("demo-1-1",), 8, 64, 1, None, 0, 0,
    )  # fmt: skip
    demo.run(
        demo.state.store.runs.save("demo", [(run, [GroupAllocation("main", ("demo-1-1",), "h100", 8, 64, 8, 8)], 0)])
    )
    demo.goto(page, "/clusters/demo/queue", role="viewer")
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    expect(page.get_by_text("The budget of vision")).to_have_count(0)  # a team that is not theirs
    demo.goto(page, "/clusters/demo/queue")
    expect(page.get_by_role("status").filter(has_text="The budget of vision is spent.")).to_be_visible()
