"""The nodes page, the fabric map and a node's page show the nodes, and operators can act on them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from headway.errors import Conflict, Unreachable
from tests.support.site import snapshots
from tests.support.site.browser import evaluate
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
MAP = "[data-fabric]"


def test_fabric_map_of_1024_nodes_is_small_and_drawn_fast(site: Site, page: Page) -> None:
    site.put(snapshots.large())
    # It may be drawn before the browser reports it as loaded.
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/fabric")) as asked:
        site.goto(page, "/clusters/demo/nodes", role="viewer")
    assert asked.value.sizes()["responseBodySize"] < 150_000
    expect(page.locator(MAP)).to_have_attribute("data-nodes", "1024")
    assert float(page.locator(MAP).get_attribute("data-draw-ms") or 1e9) < 5000, (
        "on a busy machine; 20 ms on an idle one"
    )
    expect(page.locator("#table tbody tr")).to_have_count(100)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#table")).to_contain_text("101 to 200 of 1024")


def test_fabric_map_can_be_read_and_opened_by_keyboard(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/nodes")
    expect(page.locator(MAP)).to_have_attribute("data-nodes", "5")
    page.locator(f"{MAP} canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".fabric__said")).to_have_text(
        "demo-1-1, leaf1: in use, 8 of 8 GPUs in use; job 104 train_ddp on 8"
    )
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".fabric__said")).to_contain_text("demo-1-3, leaf1: down")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("demo-1-3")


def test_nodes_page_reports_an_unreachable_prometheus(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/nodes")
    demo.backend.answers["query_metrics"] = Unreachable(
        "Prometheus on demo-head does not answer", hint="systemctl status"
    )
    page.get_by_role("button", name="Utilisation").click()
    expect(page.locator(".fabric__trouble")).to_have_text("Prometheus on demo-head does not answer")
    demo.goto(page, "/clusters/demo/nodes/demo-1-1")
    expect(page.locator(".charts .trouble")).to_contain_text("Prometheus on demo-head does not answer")


def test_late_map_response_does_not_replace_a_newer_one(demo: Site, page: Page) -> None:
    held: list[Route] = []
    page.route("**/fabric", lambda route: held.append(route))
    demo.goto(page, "/clusters/demo/nodes")
    demo.backend.answers["query_metrics"] = Unreachable(
        "Prometheus on demo-head does not answer", hint="systemctl status"
    )
    page.get_by_role("button", name="Utilisation").click()
    trouble = page.locator(".fabric__trouble")
    expect(trouble).to_have_text("Prometheus on demo-head does not answer")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/fabric")):
        held[0].continue_()
    evaluate(page, "() => new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn)))")
    expect(trouble).to_have_text("Prometheus on demo-head does not answer")


def test_node_charts_are_drawn_and_readable_by_keyboard(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/nodes/demo-1-1", role="viewer")
    expect(page.locator(".charts")).to_have_attribute("data-state", "drawn")
    power = page.locator(".fig", has_text="GPU power")
    expect(power.locator(".fig__canvas")).to_have_attribute("aria-label", re.compile("GPU power, 8 lines: between"))
    power.locator(".fig__canvas").focus()
    page.keyboard.press("ArrowLeft")
    expect(power.locator(".fig__readout")).to_contain_text("·")
    points = page.locator(".charts").get_attribute("data-points")
    page.get_by_role("button", name="6 h").click()
    expect(page.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
    assert points


def test_drain_dialog_asks_for_a_reason_and_shows_the_result(demo: Site, page: Page) -> None:
    asked: list[Any] = []
    demo.backend.answers["drain_node"] = lambda *told: asked.append(told[1:]) or "drained by olga: <b>disk</b> swap"
    demo.goto(page, "/clusters/demo/nodes/demo-1-1", role="operator")
    page.get_by_role("button", name="Drain").first.click()
    page.get_by_label("Reason").fill("<b>disk</b>   swap")
    page.locator("#ask-drain button[type=submit]").click()
    expect(page.locator(".toast")).to_have_text(re.compile("demo-1-1: drained by olga: <b>disk</b> swap"))
    assert asked == [("demo-1-1", "<b>disk</b> swap", "olga")]
    page.reload()
    expect(page.locator(".toast")).to_have_count(0)


def test_failed_return_shows_why_the_node_stays_out(demo: Site, page: Page) -> None:
    demo.backend.answers["return_incident_node"] = Conflict("demo-1-3 stays out of service: /scratch is gone")
    demo.goto(page, "/clusters/demo/nodes/demo-1-3", role="operator")
    expect(page.locator("#node .notice").first).to_contain_text("Incident 2")
    page.get_by_role("button", name="Return to service").click()
    page.get_by_role("button", name="Test and return").click()
    expect(page.locator("h1")).to_have_text("demo-1-3 stays out of service: /scratch is gone")


@pytest.mark.parametrize("role", ["viewer", "member", "lead"])
def test_non_operators_see_nodes_without_actions(demo: Site, page: Page, role: str) -> None:
    demo.goto(page, "/clusters/demo/nodes/demo-1-3", role=role)
    expect(page.locator("h1")).to_have_text("demo-1-3")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    demo.goto(page, "/clusters/demo/incidents/2", role=role)
    expect(page.get_by_role("button", name="Return to service")).to_have_count(0)


def test_home_page_shows_broken_and_used_gpus_per_cluster(demo: Site, page: Page) -> None:
    demo.goto(page, "/", role="viewer")
    card = page.locator(".cluster", has=page.locator("#cluster-demo"))
    expect(card).to_contain_text("32 in use")
    expect(card).to_contain_text("8 out of service")
    expect(card).to_contain_text("1 open incident")
    expect(card).to_contain_text("$119.60")
    expect(page.locator(".cluster", has=page.locator("#cluster-prod"))).to_contain_text("Figures are old")
    expect(page.locator(".cluster", has=page.locator("#cluster-half"))).to_contain_text("being created")
