"""A form is sent once, however it is clicked, and can be sent again where that is intended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from headway.domain.cluster import Cluster
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from tests.support.site.browser import evaluate
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
SCRIPT = "#!/bin/bash\nsrun hostname\n"


class Slow:
    """A slow sbatch, which answers when the test lets it."""

    def __init__(self, demo: Site) -> None:
        self.demo, self.go, self.jobs = demo, asyncio.Event(), 0
        self.begun = threading.Event()
        self.trial = demo.backend.answers["submit"]
        demo.backend.answers["submit"] = self

    async def __call__(self, cluster: Cluster, ask: SubmitIn, user: str, *_: Any) -> SubmitOut:
        if "--test-only" in ask.args:
            return self.trial(cluster, ask, user)  # type: ignore[no-any-return]
        self.jobs += 1
        self.begun.set()
        await self.go.wait()
        return SubmitOut(job_id=105, cluster=cluster.name, user=user, workdir="~")

    def answers(self) -> None:
        self.demo.loop.call_soon_threadsafe(self.go.set)


@pytest.fixture
def slow(demo: Site) -> Iterator[Slow]:
    object.__setattr__(demo.state.settings, "notebooks", "http://*.notebooks.localhost:7879")
    made = Slow(demo)
    yield made
    made.answers()


def posts(page: Page, path: str) -> list[str]:
    """Returns a list that grows when the page sends a form to this path."""
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" and one.url.endswith(path) else None)
    return sent


def stopped(page: Page, button: Locator) -> None:
    """Sends the form and keeps the browser on its page, like a person who stops the request."""
    asked: list[str] = []

    def nothing(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=204)

    page.route("**/submit", nothing)
    button.click()
    expect(button).to_have_attribute("aria-busy", "true")
    expect(button).to_have_text("Submitting …")
    button.click()  # already sent
    assert len(asked) == 1
    page.unroute("**/submit")


@pytest.mark.parametrize("path", ["/clusters/demo/submit", "/clusters/demo/notebooks"])
def test_double_click_sends_the_form_once(demo: Site, page: Page, slow: Slow, path: str) -> None:
    demo.goto(page, path, role="member")
    sent = posts(page, path)
    if path.endswith("submit"):
        page.locator("#f-script").fill(SCRIPT)
    button = page.locator("form .btn--main[type=submit]").last
    button.scroll_into_view_if_needed()
    box = button.bounding_box() or {}
    for _ in range(2):
        page.mouse.click(box["x"] + 10, box["y"] + 10)
        assert slow.begun.wait(60)  # browsers drop a click before they have sent anything
    slow.answers()
    if path.endswith("submit"):
        page.wait_for_url("**/jobs/105")
    else:
        expect(page.locator("#notebooks li")).to_have_count(3)
    assert sent == [f"{demo.url}{path}"]
    assert slow.jobs == 1


def test_stopped_form_can_be_sent_again_after_a_change(demo: Site, page: Page, slow: Slow) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    page.locator("#f-script").fill(SCRIPT)
    button = page.locator("#send")
    stopped(page, button)
    page.locator("#f-job_name").fill("another")
    expect(button).to_have_text("Submit")
    expect(button).not_to_have_attribute("aria-busy", "true")
    slow.answers()
    button.click()
    page.wait_for_url("**/jobs/105")


def test_invalid_form_is_not_sent_and_stays_editable(demo: Site, page: Page, slow: Slow) -> None:
    demo.goto(page, "/clusters/demo/notebooks", role="member")
    page.locator("#nb-time").evaluate("one => { one.required = true; one.value = ''; }")
    button = page.get_by_role("button", name="Start")
    button.click()
    expect(button).not_to_have_attribute("aria-busy", "true")
    page.fill("#nb-time", "1:00:00")
    slow.answers()
    button.click()
    expect(page.locator("#notebooks li")).to_have_count(3)


def test_restored_page_sends_its_form_with_a_new_key(demo: Site, page: Page, slow: Slow) -> None:
    demo.goto(page, "/clusters/demo/submit", role="member")
    page.locator("#f-script").fill(SCRIPT)
    button, form_key = page.locator("#send"), page.locator("#submit [name=form_key]")
    before = form_key.input_value()
    stopped(page, button)
    page.evaluate("window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    expect(button).to_have_text("Submit")
    assert len(form_key.input_value()) == 32
    assert form_key.input_value() != before
    slow.answers()
    button.click()
    page.wait_for_url("**/jobs/105")
    page.go_back()
    expect(button).to_have_text("Submit")
    page.locator("#f-script").fill(SCRIPT)
    button.click()
    page.wait_for_url("**/jobs/105")
    assert len(set(demo.backend.tags)) == len(demo.backend.tags) == slow.jobs == 2


def test_form_sent_twice_without_scripts_runs_once(demo: Site, page: Page, slow: Slow) -> None:
    demo.goto(page, "/clusters/demo/notebooks", role="member")
    slow.answers()
    send = """async () => {
        const form = document.querySelector("form.form[action$=notebooks]"), body = new URLSearchParams(new FormData(form));
        const both = await Promise.all([1, 2].map(() => fetch(form.action, { method: "POST", body })));
        return both.map((one) => one.url);
    }"""
    assert evaluate(page, send) == [f"{demo.url}/clusters/demo/notebooks"] * 2
    assert slow.jobs == 1


@pytest.mark.parametrize(
    ("path", "field"),
    [("/new", "#text"), ("/clusters/demo/submit", "#f-script"), ("/clusters/demo/notebooks", "#nb-idle_minutes")],
)
def test_typed_text_survives_the_end_of_the_session(slow: Slow, page: Page, path: str, field: str) -> None:
    slow.demo.goto(page, path)
    text = page.locator(field)
    text.fill("7")
    slow.demo.sign_out()
    text.press("End")
    text.press_sequentially("8")
    expect(page.locator(".toast.is-bad")).to_contain_text("your session has ended")
    expect(text).to_have_value("78")
    slow.demo.goto(page, "/clusters/demo/incidents")
    slow.demo.sign_out()
    expect(page.locator("h1")).to_have_text("Sign in")
