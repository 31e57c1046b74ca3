"""The live updates of a page cost nothing without viewers, survive proxies and interruptions, and show when
they fail."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.support.site import snapshots
from tests.support.site.job_log import Log
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
NODE = "/clusters/demo/nodes/demo-1-1"
AGAIN_MS = 11_000  # after this time each page has sent another request


def look(page: Page, *, away: bool) -> None:
    """Makes the page believe that its tab was hidden or shown."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            Object.defineProperty(document, "visibilityState", { configurable: true, get: () => hidden ? "hidden" : "visible" });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        away,
    )


class Streams:
    """The streams that a page has open."""

    def __init__(self, page: Page) -> None:
        self.open: set[Request] = set()
        page.on("request", lambda one: self.open.add(one) if re.search(r"/live\b|follow=true", one.url) else None)
        page.on("requestfinished", lambda one: self.open.discard(one))
        page.on("requestfailed", lambda one: self.open.discard(one))

    def are(self, number: int, page: Page) -> None:
        for _ in range(1200):
            if len(self.open) == number:
                return
            page.wait_for_timeout(50)
        assert len(self.open) == number


def test_hidden_page_closes_its_streams_and_resumes_when_shown(
    demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.put(snapshots.happy())
    log = Log(demo, monkeypatch, b"step 1\n")
    streams = Streams(page)
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    streams.are(2, page)
    look(page, away=True)
    streams.are(0, page)
    demo.put(snapshots.broken())
    log.write(b"step 2\n")
    expect(page.locator("#log-text")).to_have_text("step 1")
    look(page, away=False)
    expect(page.locator("#head")).to_contain_text("requeued 1")
    expect(page.locator("#log-text")).to_have_text("step 1\nstep 2")
    assert log.starts == [7, 7], "it goes on from its place"
    streams.are(2, page)
    expect(page.locator("#server-down")).to_be_hidden()
    look(page, away=True)
    demo.sign_out()
    look(page, away=False)
    expect(page.locator("h1")).to_have_text("Sign in")


def test_hidden_tabs_free_their_connections(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    Log(demo, monkeypatch, b"step 1\n")
    one = page
    for _ in range(4):  # a browser opens at most six connections to a server
        demo.goto(one, "/clusters/demo/jobs/104", role="member")
        expect(one.locator("#log-state")).to_have_text("live")
        look(one, away=True)
        one = page.context.new_page()


FOREIGN = {
    "error": (502, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "page": (200, "<html><body><h1>Who are you?</h1></body></html>"),
}


@pytest.mark.parametrize("message", FOREIGN)
@pytest.mark.parametrize("path", [NODE, "/clusters/demo/nodes", "/incidents", "/"])
def test_proxy_error_pages_do_not_replace_page_content(demo: Site, page: Page, path: str, message: str) -> None:
    status, text = FOREIGN[message]

    def proxy(route: Route) -> None:
        if route.request.headers.get("hx-request"):
            route.fulfill(status=status, body=text, content_type="text/html")
        else:
            route.continue_()

    page.clock.install()
    demo.goto(page, path, role="operator")
    before = page.locator("main h1").inner_text()
    page.route(f"{demo.url}{path}*", proxy)
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("#server-down")).to_be_visible()
    expect(page.locator("main h1")).to_have_text(before)
    page.unroute(f"{demo.url}{path}*")
    page.evaluate("document.querySelector('#node, #table, #incidents, #home').dataset.old = 'yes'")
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("[data-old]")).to_have_count(0)
    expect(page.locator("#server-down")).to_be_hidden()
    expect(page.locator("main h1")).to_have_text(before)


def test_node_table_stays_until_a_restarted_server_has_data(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/clusters/demo/nodes")
    rows = page.locator("#table tbody tr")
    number = rows.count()
    known = demo.state.live.snapshot("demo")
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, type(known)("demo"))
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("#server-down")).to_be_visible()
    expect(rows).to_have_count(number)
    demo.loop.call_soon_threadsafe(demo.state.live.store_snapshot, known)
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("#server-down")).to_be_hidden()
    expect(rows).to_have_count(number)


def test_open_node_page_shows_that_its_cluster_is_gone(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, NODE)
    demo.put(None)
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("h1")).to_have_text("no cluster 'demo'")


def test_open_drain_dialog_survives_and_pauses_refreshes(demo: Site, page: Page) -> None:
    waiting: list[Route] = []

    def slow(route: Route) -> None:
        if route.request.headers.get("hx-request"):
            waiting.append(route)
        else:
            route.continue_()

    page.clock.install()
    page.route(f"{demo.url}{NODE}", slow)
    demo.goto(page, NODE, role="operator")
    with page.expect_request(f"{demo.url}{NODE}"):
        page.clock.run_for(5_000)
    page.get_by_role("button", name="Drain").first.click()
    reason = page.get_by_label("Reason")
    reason.fill("disk swap")
    with page.expect_response(f"{demo.url}{NODE}"):
        waiting[0].continue_()
    page.wait_for_function("() => !document.querySelector('.htmx-request, .htmx-swapping, .htmx-settling')")
    expect(reason).to_be_visible()
    expect(reason).to_have_value("disk swap")
    page.clock.run_for(60_000)
    expect(page.locator("#server-down")).to_be_hidden()  # it has sent no request
    assert len(waiting) == 1
    page.unroute(f"{demo.url}{NODE}")
    page.locator("#ask-drain").get_by_role("button", name="Not now").click()
    demo.put(snapshots.happy())
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("#ask-drain")).to_be_hidden()


@pytest.mark.parametrize(
    "path",
    ["/incidents", "/clusters/demo/incidents/2", "/clusters/demo/notebooks", "/clusters/demo/storage",
     "/clusters/demo/events", "/operations/op-running"],
)  # fmt: skip
def test_every_live_page_reports_a_lost_server(demo: Site, page: Page, path: str) -> None:
    page.clock.install()
    demo.goto(page, path)
    title = page.locator("main h1").inner_text()
    expect(page.locator("#server-down")).to_be_hidden()
    demo.stop()
    page.clock.run_for(AGAIN_MS)
    expect(page.locator("#server-down")).to_contain_text("The server does not answer.")
    expect(page.locator("#server-down")).to_be_visible()
    expect(page.locator("main h1")).to_have_text(title)


def test_static_page_never_reports_a_lost_server(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, "/people")
    page.clock.run_for(120_000)
    expect(page.locator("#server-down")).to_be_hidden()
