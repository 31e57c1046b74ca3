"""Parts of pages that bring themselves up to date leave what somebody is at: the focus, and what was typed; and times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from conftest import Site
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
FOCUS = (
    "[document.activeElement.tagName, document.activeElement.getAttribute('href'), document.activeElement.textContent]"
)


def later(page: Page, path: str) -> None:
    """Lets time pass until the part has come anew."""
    page.evaluate("document.activeElement.dataset.old = 'yes'")
    with page.expect_response(lambda one: one.request.headers.get("hx-request") == "true" and path in one.url):
        page.clock.run_for(11_000)
    page.wait_for_function("() => !document.querySelector('.htmx-request, .htmx-swapping, .htmx-settling')")


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        ("/", "a.cluster__open"),
        ("/incidents", "#incidents tbody tr:nth-child(2) td a >> nth=1"),
        ("/clusters/demo/incidents", ".segments a >> nth=1"),
        ("/clusters/demo/notebooks", "#notebooks button"),
        ("/clusters/demo/nodes/demo-1-1", "#node button"),
        ("/clusters/demo/nodes", "#table tbody a >> nth=2"),
        ("/clusters/demo/nodes", "#node-states a >> nth=1"),
        ("/clusters/demo/events", "#events a >> nth=1"),
    ],
)
def test_the_focus_stays_where_it_was(demo: Site, page: Page, path: str, selector: str) -> None:
    page.clock.install()
    demo.goto(page, path)
    page.locator(selector).first.focus()
    before = page.evaluate(FOCUS)
    later(page, path)
    assert page.evaluate("document.activeElement.dataset.old") is None, "it is another element"
    assert page.evaluate(FOCUS) == before


def test_what_is_searched_for_is_not_wiped_while_it_is_typed(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/clusters/demo/nodes", role="viewer")
    box = page.get_by_label("Find nodes")
    box.press_sequentially("demo-1")
    later(page, "/clusters/demo/nodes")
    assert box.input_value() == "demo-1"
    assert page.evaluate("document.activeElement.name") == "q"
    box.press("Tab")
    later(page, "/clusters/demo/nodes")
    assert box.input_value() == "demo-1"


def test_days_and_the_times_beside_them_are_of_one_zone(demo: Site, browser: Browser) -> None:
    page = browser.new_context(timezone_id="Asia/Tokyo").new_page()
    store = demo.state.store
    now, evening = store._now, datetime(2026, 11, 20, 20, 0, tzinfo=UTC).timestamp()
    for hours in (-6, 0):  # 23:00 of the 20th in Tokyo, and 05:00 of the 21st
        store._now = lambda hours=hours: evening + hours * 3600
        demo.run(store.note("olga", "node.drain", "demo/demo-1-1", {"reason": f"hour {hours}"}))
    store._now = now
    demo.goto(page, "/clusters/demo/events?show=deed")
    row = page.locator("#events li")
    expect(row.filter(has_text="hour 0").locator("time")).to_have_text("2026-11-21 05:00")
    expect(row.filter(has_text="hour -6").locator("time")).to_have_text("2026-11-20 23:00")
    expect(page.locator("#events")).not_to_contain_text("2026-11-20 20")
    demo.goto(page, "/audit?since=2026-11-20&until=2026-11-20&action=node.drain")
    assert page.locator("tbody time").all_inner_texts() == ["2026-11-20 20:00 UTC", "2026-11-20 14:00 UTC"]
    expect(page.locator("h1 ~ p")).to_contain_text("Times and days are UTC.")
    page.context.close()
