"""Actions that can't be undone are in the menu of their row, and ask before they act."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1440, 360])
def test_a_token_is_revoked_from_the_menu_of_its_row(demo: Site, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    row, _ = demo.run(demo.state.store.tokens.create("ann", label="old laptop"))
    demo.goto(page, "/tokens")
    expect(page.get_by_role("button", name="Revoke …")).to_have_count(0)
    button = page.get_by_role("button", name="Actions on token old laptop")
    button.click()
    menu = page.locator(f"#token-{row.id}")
    expect(menu).to_be_visible()
    at, shown = button.bounding_box(), menu.bounding_box()
    assert at is not None
    assert shown is not None
    assert abs(shown["x"] + shown["width"] - at["x"] - at["width"]) < 3, "the menu is at its button"
    menu.get_by_role("button", name="Revoke …").click()
    expect(page.locator(f"#revoke-{row.id}")).to_contain_text(
        "others of ann stay signed in, and their open notebooks ask to sign in again"
    )
    page.locator(f"#revoke-{row.id}").get_by_role("button", name="Revoke").click()
    expect(page.locator(".toast")).to_contain_text("The token is revoked")
    expect(page.locator("main")).not_to_contain_text("old laptop")


def test_a_person_is_removed_from_the_menu_of_the_row(demo: Site, page: Page) -> None:
    demo.run(demo.state.store.people.set_role("zoe", "member"))
    demo.goto(page, "/people")
    page.get_by_role("button", name="Actions on zoe").click()
    page.get_by_role("button", name="Remove …").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("zoe is removed")


def test_menu_opens_at_its_button_wherever_the_page_is_scrolled(demo: Site, page: Page) -> None:
    people(demo, page)
    button = page.get_by_role("button", name="Actions on z20")
    for block in ("start", "end", "start"):
        button.evaluate("(button, block) => button.scrollIntoView({ block })", block)
        button.click()
        menu = page.locator(".pop--row:popover-open")
        at, shown = button.bounding_box(), menu.bounding_box()
        assert at is not None
        assert shown is not None
        below, above = shown["y"] - at["y"] - at["height"], at["y"] - shown["y"] - shown["height"]
        assert 0 <= max(below, above) < 8, (block, at, shown)
        page.keyboard.press("Escape")
        expect(menu).to_have_count(0)


def test_question_stays_open_while_the_page_scrolls(demo: Site, page: Page) -> None:
    people(demo, page)
    page.get_by_role("button", name="Actions on z05").click()
    page.evaluate(
        "() => new Promise((done) => { addEventListener('scroll', () => done(), { once: true }); scrollBy(0, 20); })"
    )
    expect(page.locator(".pop--row:popover-open")).to_have_count(0)
    page.get_by_role("button", name="Actions on z05").click()
    page.get_by_role("button", name="Remove …").click()
    question = page.locator(".pop--ask:popover-open")
    expect(question).to_be_visible()
    page.evaluate(
        "() => new Promise((done) => { addEventListener('scroll', () => done(), { once: true }); scrollBy(0, 20); })"
    )
    expect(question).to_be_visible()


def people(demo: Site, page: Page) -> None:
    """Opens the page of people with many rows."""
    for number in range(30):
        demo.run(demo.state.store.people.set_role(f"z{number:02}", "member"))
    demo.goto(page, "/people")
