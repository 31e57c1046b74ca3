"""Parts of pages that bring themselves up to date leave what somebody is at: the focus, and what was typed."""

from __future__ import annotations

import pytest
from conftest import Site
from playwright.sync_api import Page

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
