"""What keeps a page up to date: it costs nothing where nobody looks."""

from __future__ import annotations

import re

import page_demo
import pytest
from conftest import Site
from playwright.sync_api import Page, Request, expect
from test_job_log import Log

pytestmark = pytest.mark.browser


def look(page: Page, *, away: bool) -> None:
    """As if another tab were brought before this one, or this one before others."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            Object.defineProperty(document, "visibilityState", { configurable: true, get: () => hidden ? "hidden" : "visible" });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        away,
    )


class Streams:
    """Those that a page has open."""

    def __init__(self, page: Page) -> None:
        self.open: set[Request] = set()
        page.on("request", lambda one: self.open.add(one) if re.search(r"/live\b|follow=true", one.url) else None)
        page.on("requestfinished", lambda one: self.open.discard(one))
        page.on("requestfailed", lambda one: self.open.discard(one))

    def are(self, number: int, page: Page) -> None:
        for _ in range(100):
            if len(self.open) == number:
                return
            page.wait_for_timeout(50)
        assert len(self.open) == number


def test_a_page_that_nobody_sees_holds_no_stream(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.put(page_demo.happy())
    log = Log(demo, monkeypatch, b"step 1\n")
    streams = Streams(page)
    demo.goto(page, "/clusters/demo/jobs/104", role="member")
    expect(page.locator("#log-state")).to_have_text("live")
    streams.are(2, page)
    look(page, away=True)
    streams.are(0, page)
    demo.put(page_demo.broken())
    log.write(b"step 2\n")
    expect(page.locator("#log-text")).to_have_text("step 1")
    look(page, away=False)
    expect(page.locator("#head")).to_contain_text("requeued 1")
    expect(page.locator("#log-text")).to_have_text("step 1\nstep 2")
    assert log.starts == [7, 7], "it goes on from its place"
    streams.are(2, page)
    expect(page.locator("#offline")).to_be_hidden()
    look(page, away=True)
    demo.sign_out()
    look(page, away=False)
    expect(page.locator("h1")).to_have_text("Sign in")


def test_many_tabs_leave_room_for_another(demo: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    Log(demo, monkeypatch, b"step 1\n")
    one = page
    for _ in range(4):  # six connections are all that a browser opens to a server
        demo.goto(one, "/clusters/demo/jobs/104", role="member")
        expect(one.locator("#log-state")).to_have_text("live")
        look(one, away=True)
        one = page.context.new_page()
