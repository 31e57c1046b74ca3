"""The nodes page, the fabric map and a node's page show the nodes, and operators can act on them."""

from __future__ import annotations

import re
from typing import Any

import page_demo
import pytest
from playwright.sync_api import Page, Route, expect

from conftest import Site
from headway.errors import Conflict, Unreachable

pytestmark = pytest.mark.browser
MAP = "[data-fabric]"


def test_the_map_of_a_thousand_nodes_is_quick_and_small(site: Site, page: Page) -> None:
    site.put(page_demo.large())
    # It may be drawn before the browser reports it as loaded.
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/fabric")) as asked:
        site.goto(page, "/clusters/demo/nodes", role="viewer")
    assert asked.value.sizes()["responseBodySize"] < 150_000
    expect(page.locator(MAP)).to_have_attribute("data-nodes", "1024")
    assert float(page.locator(MAP).get_attribute("data-draw-ms") or 1e9) < 1000, (
        "on a busy machine; 20 ms on an idle one"
    )
    expect(page.locator("#table tbody tr")).to_have_count(100)
    page.get_by_role("link", name="Further").click()
    expect(page.locator("#table")).to_contain_text("101 to 200 of 1024")


def test_the_keyboard_reads_the_map_and_opens_a_node(demo: Site, page: Page) -> None:
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


def test_utilisation_without_prometheus_says_so(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/nodes")
    demo.work.answers["metrics"] = Unreachable("Prometheus on demo-head does not answer", hint="systemctl status")
    page.get_by_role("button", name="Utilisation").click()
    expect(page.locator(".fabric__trouble")).to_have_text("Prometheus on demo-head does not answer")
    demo.goto(page, "/clusters/demo/nodes/demo-1-1")
    expect(page.locator(".charts .trouble")).to_contain_text("Prometheus on demo-head does not answer")


def test_an_answer_that_comes_late_doesn_t_undo_a_later_one(demo: Site, page: Page) -> None:
    held: list[Route] = []
    page.route("**/fabric", lambda route: held.append(route))
    demo.goto(page, "/clusters/demo/nodes")
    demo.work.answers["metrics"] = Unreachable("Prometheus on demo-head does not answer", hint="systemctl status")
    page.get_by_role("button", name="Utilisation").click()
    trouble = page.locator(".fabric__trouble")
    expect(trouble).to_have_text("Prometheus on demo-head does not answer")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/fabric")):
        held[0].continue_()
    page.evaluate("() => new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn)))")
    expect(trouble).to_have_text("Prometheus on demo-head does not answer")


def test_charts_are_drawn_and_read_by_keyboard(demo: Site, page: Page) -> None:
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


def test_a_drain_asks_for_a_reason_and_says_what_was_done(demo: Site, page: Page) -> None:
    asked: list[Any] = []
    demo.work.answers["drain_node"] = lambda *told: asked.append(told[1:]) or "drained by olga: <b>disk</b> swap"
    demo.goto(page, "/clusters/demo/nodes/demo-1-1", role="operator")
    page.get_by_role("button", name="Drain").first.click()
    page.get_by_label("Reason").fill("<b>disk</b>   swap")
    page.locator("#ask-drain button[type=submit]").click()
    expect(page.locator(".toast")).to_have_text(re.compile("demo-1-1: drained by olga: <b>disk</b> swap"))
    assert asked == [("demo-1-1", "<b>disk</b> swap", "olga")]
    page.reload()
    expect(page.locator(".toast")).to_have_count(0)


def test_a_node_whose_tests_fail_stays_out_and_the_page_says_why(demo: Site, page: Page) -> None:
    demo.work.answers["bring_back"] = Conflict("demo-1-3 stays out of service: /scratch is gone")
    demo.goto(page, "/clusters/demo/nodes/demo-1-3", role="operator")
    expect(page.locator("#node .notice").first).to_contain_text("Incident 2")
    page.get_by_role("button", name="Return to service").click()
    page.get_by_role("button", name="Test and return").click()
    expect(page.locator("h1")).to_have_text("demo-1-3 stays out of service: /scratch is gone")


@pytest.mark.parametrize("role", ["viewer", "member", "lead"])
def test_others_see_and_do_not_act(demo: Site, page: Page, role: str) -> None:
    demo.goto(page, "/clusters/demo/nodes/demo-1-3", role=role)
    expect(page.locator("h1")).to_have_text("demo-1-3")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    demo.goto(page, "/clusters/demo/incidents/2", role=role)
    expect(page.get_by_role("button", name="Return to service")).to_have_count(0)


def test_home_says_what_is_broken_and_free(demo: Site, page: Page) -> None:
    demo.goto(page, "/", role="viewer")
    card = page.locator(".cluster", has=page.locator("#cluster-demo"))
    expect(card).to_contain_text("32 in use")
    expect(card).to_contain_text("8 broken")
    expect(card).to_contain_text("1 open incident")
    expect(card).to_contain_text("$119.60")
    expect(page.locator(".cluster", has=page.locator("#cluster-prod"))).to_contain_text("Figures are old")
    expect(page.locator(".cluster", has=page.locator("#cluster-half"))).to_contain_text("being created")
