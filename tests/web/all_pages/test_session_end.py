"""What a page shows leaves the browser with the session, also in tabs that the server does not tell; and names that people choose
do not change objects of the page's scripts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site import snapshots
from tests.support.site.server import Site

pytestmark = pytest.mark.browser
WITHOUT_STREAM = "/tokens"
POLLUTING = ("__proto__", "constructor", "prototype", "__proto__[hit]", "constructor.prototype.hit")


def test_sign_out_in_one_tab_clears_the_others(demo: Site, page: Page) -> None:
    demo.goto(page, WITHOUT_STREAM)
    expect(page.locator("h1")).not_to_have_text("Sign in")
    other = page.context.new_page()
    other.goto(f"{demo.url}{WITHOUT_STREAM}")
    other.locator("[popovertarget='self']").click()
    other.get_by_role("button", name="Sign out", exact=True).click()
    expect(other.locator("h1")).to_have_text("Sign in")
    expect(page.locator("h1")).to_have_text("Sign in")


def test_sign_in_page_of_another_tab_does_not_disturb_a_session(demo: Site, page: Page) -> None:
    demo.goto(page, WITHOUT_STREAM)
    page.evaluate("document.documentElement.dataset.same = 'yes'")
    asked: list[str] = []
    page.on("response", lambda answer: asked.append(answer.url))
    other = page.context.new_page()
    with page.expect_response("**/api/v1/me") as answered:
        other.goto(f"{demo.url}/signin")
    assert answered.value.status == 200
    expect(page.locator("html")).to_have_attribute("data-same", "yes")
    assert not {one for one in asked if "/tokens" in one}, "it was not loaded again"


def test_page_without_a_stream_leaves_when_the_session_is_unused(demo: Site, page: Page) -> None:
    page.clock.install()
    demo.goto(page, WITHOUT_STREAM)
    page.route("**/*", lambda route: route.abort())  # the server does not answer
    page.clock.fast_forward(12 * 3600 * 1000 - 60_000)
    expect(page.locator("#main")).to_be_visible()
    page.clock.fast_forward(120_000)
    expect(page.locator("#main")).to_have_count(0)


def test_names_of_people_change_no_objects_of_scripts(site: Site, page: Page) -> None:
    base = snapshots.happy()
    jobs = [snapshots.training(base.jobs[0].nodes, name=name, user=name, nodelist=name) for name in POLLUTING]
    site.put(snapshots.Snapshot(base.status, (*jobs, *base.jobs[len(jobs) :]), ()))
    query = "&".join(f"{name}=hit" for name in POLLUTING)
    for path in ("/clusters/demo", "/clusters/demo/queue", "/clusters/demo/nodes"):
        site.goto(page, f"{path}?{query}#{query}")
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("[Object.keys(Object.prototype), ({}).hit ?? null, Object.keys(Array.prototype)]") == [
            [],
            None,
            [],
        ]
