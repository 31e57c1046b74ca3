"""Parts of pages that refresh themselves keep the focus and typed text, and show times correctly."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from headway.services.read_model.snapshot import RecentEvent
from tests.support.site import snapshots
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
FOCUS = (
    "[document.activeElement.tagName, document.activeElement.getAttribute('href'), document.activeElement.textContent]"
)


def later(page: Page, path: str) -> None:
    """Advances the clock until the part has been refreshed."""
    page.evaluate("document.activeElement.dataset.old = 'yes'")
    with (
        page.expect_response(lambda one: one.request.headers.get("hx-request") == "true" and path in one.url),
        page.expect_request(lambda one: one.headers.get("hx-request") == "true" and path in one.url),
    ):
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
def test_focus_stays_after_a_refresh(demo: Site, page: Page, path: str, selector: str) -> None:
    page.clock.install()
    demo.goto(page, path)
    page.locator(selector).first.focus()
    before = page.evaluate(FOCUS)
    later(page, path)
    assert page.evaluate("document.activeElement.dataset.old") is None, "it is another element"
    assert page.evaluate(FOCUS) == before


def test_all_parts_of_the_nodes_page_refresh_together(site: Site, page: Page) -> None:
    page.clock.install()
    base = snapshots.happy()
    site.put(base)
    site.goto(page, "/clusters/demo/nodes", role="viewer")
    shown = [page.locator(part).first for part in ("#node-count", "#group-rows td.num", "#partition-rows td.num")]
    assert [one.inner_text() for one in shown] == ["5", "5", "5"]
    nodes = [*base.status.nodes, snapshots.node("demo-1-5", "leaf1", states=["IDLE"])]
    site.put(replace(base, status=base.status.model_copy(update={"nodes": nodes})))
    later(page, "/clusters/demo/nodes")
    assert [one.inner_text() for one in shown] == ["6", "6", "6"]


def test_node_history_refreshes_with_a_new_incident(site: Site, page: Page) -> None:
    page.clock.install()
    site.put(snapshots.happy())
    site.goto(page, "/clusters/demo/nodes/demo-1-3", role="viewer")
    expect(page.locator("#node-past")).to_contain_text("This node had no fault.")
    site.put(snapshots.broken())
    later(page, "/clusters/demo/nodes/demo-1-3")
    expect(page.locator("#node .notice")).to_contain_text("no heartbeat")
    expect(page.locator("#node-past")).to_contain_text("no heartbeat")


@pytest.mark.parametrize("path", ["storage", "events", "nodes", "incidents"])
def test_refresh_also_updates_the_stale_notice(site: Site, page: Page, path: str) -> None:
    page.clock.install()
    base = snapshots.happy()
    site.put(base)
    site.goto(page, f"/clusters/demo/{path}")
    gone = base.status.cluster.model_copy(update={"stale": "demo-head does not answer", "as_of": time.time() - 400})
    site.put(replace(base, status=base.status.model_copy(update={"cluster": gone})))
    later(page, f"/clusters/demo/{path}")
    expect(page.locator("#cluster-banners")).to_contain_text("demo-head does not answer")
    expect(page.locator("#pulse .dot")).to_have_class(re.compile("is-old"))


@pytest.mark.parametrize("path", ["", "/queue", "/jobs/104"])
def test_cluster_state_in_the_header_updates(site: Site, page: Page, path: str) -> None:
    site.put(snapshots.happy())
    site.goto(page, f"/clusters/demo{path}")
    expect(page.locator("#place .pill")).to_have_text("ready")
    site.put(snapshots.broken())
    expect(page.locator("#place .pill")).to_have_text("degraded")
    expect(page.locator("#place")).to_contain_text("simulated GPUs")


def test_search_text_survives_a_refresh(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/clusters/demo/nodes", role="viewer")
    box = page.get_by_label("Search nodes")
    box.press_sequentially("demo-1")
    later(page, "/clusters/demo/nodes")
    assert box.input_value() == "demo-1"
    assert page.evaluate("document.activeElement.name") == "q"
    box.press("Tab")
    later(page, "/clusters/demo/nodes")
    assert box.input_value() == "demo-1"


def test_events_and_audit_pages_use_one_time_zone_for_days_and_times(demo: Site, browser: Browser) -> None:
    page = browser.new_context(timezone_id="Asia/Tokyo").new_page()
    store = demo.state.store
    now, evening = store.database.now, datetime(2026, 11, 20, 20, 0, tzinfo=UTC).timestamp()
    for hours in (-6, 0):  # 23:00 of the 20th in Tokyo, and 05:00 of the 21st
        store.database.now = lambda hours=hours: evening + hours * 3600
        demo.run(store.audit.record("olga", "node.drain", "demo/demo-1-1", {"reason": f"hour {hours}"}))
    store.database.now = now
    demo.goto(page, "/clusters/demo/events?show=action")
    row = page.locator("#events li")
    expect(row.filter(has_text="hour 0").locator("time")).to_have_text("2026-11-21 05:00")
    expect(row.filter(has_text="hour -6").locator("time")).to_have_text("2026-11-20 23:00")
    expect(page.locator("#events")).not_to_contain_text("2026-11-20 20")
    demo.goto(page, "/audit?since=2026-11-20&until=2026-11-20&action=node.drain")
    assert page.locator("tbody time").all_inner_texts() == ["2026-11-20 20:00 UTC", "2026-11-20 14:00 UTC"]
    expect(page.locator("h1 ~ p")).to_contain_text("Times are UTC.")
    page.context.close()


def test_times_show_their_date_unless_it_is_today(site: Site, browser: Browser) -> None:
    """At the reader's noon, wherever that is now: a minute ago is today, yesterday's noon is not."""
    page = browser.new_context(timezone_id=f"Etc/GMT{datetime.now(UTC).hour - 12:+d}").new_page()
    now = time.time()
    old = snapshots.fault(2, "demo-1-3", "no heartbeat", "repairing", 21 * 86_400, snapshots.TimesOut(drain_s=1.1))
    recent = (RecentEvent(now - 60, "now"), RecentEvent(now - 86_400, "yesterday"))
    site.put(replace(snapshots.happy(), recent_events=recent, incidents=(old,)))
    site.goto(page, "/clusters/demo")
    # The hour may end while the page is opened.
    clock, day = re.compile(r"^(11:59|1[23]:\d\d):\d\d$"), re.compile(r"^\d{4}-\d\d-\d\d 1[123]:\d\d$")
    expect(page.locator("#history time")).to_have_text([clock, day])
    expect(page.locator("#incidents time")).to_have_text(day)
    expect(page.locator("#pulse time")).to_have_text(clock)
    site.goto(page, "/clusters/demo/incidents/2")
    expect(page.locator(".steps__when time").first).to_have_text(day)
    page.context.close()


def test_old_times_show_their_date_on_a_phone(site: Site, browser: Browser) -> None:
    page = browser.new_context(viewport={"width": 360, "height": 740}).new_page()
    base = snapshots.broken()
    long_ago = tuple(replace(event, at=event.at - 40 * 86_400) for event in base.recent_events)
    status = base.status.model_copy(
        update={"cluster": base.status.cluster.model_copy(update={"as_of": time.time() - 2 * 86_400})}
    )
    site.put(replace(base, status=status, recent_events=long_ago))
    for path in ("/clusters/demo", "/clusters/demo/incidents/2"):
        site.goto(page, path)
        expect(page.locator("#pulse time")).to_have_text(re.compile(r"^\d{4}-"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.context.close()
