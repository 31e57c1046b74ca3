"""The search in the header, the menu of clusters, and keys that open pages."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.browser import RULES, faults
from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_ctrl_k_finds_a_job_and_enter_opens_it(demo: Site, page: Page, axe: str) -> None:
    page.context.add_init_script(axe)
    demo.goto(page, "/clusters/demo/nodes", role="member")
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    expect(dialog.get_by_role("link", name="Queue demo")).to_be_visible()  # an empty search lists the pages
    page.keyboard.type("asr_l")
    expect(dialog.get_by_role("region", name="Jobs").get_by_role("link")).to_have_text(
        [re.compile("107 asr_large")] * 2
    )
    assert faults(page, *RULES) == []
    expect(page.locator("#found")).to_have_attribute("data-text", "asr_l")
    page.keyboard.press("Enter")
    page.wait_for_url("**/clusters/demo/jobs/107")


def test_arrows_move_through_the_results_and_escape_closes(demo: Site, page: Page) -> None:
    demo.goto(page, "/", role="viewer")
    page.get_by_role("link", name="Search, Ctrl K").click()
    dialog = page.get_by_role("dialog", name="Search")
    dialog.get_by_role("searchbox").fill("demo-1-")
    expect(dialog.get_by_role("region", name="Nodes").get_by_role("link").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("link").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def press_at_once(page: Page, *keys: str) -> None:
    """Presses keys without a pause, which a busy machine would make longer than the page waits for the second key."""
    press = (
        'keys => keys.forEach(key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))'
    )
    page.evaluate(press, list(keys))


def test_a_question_mark_lists_the_keys_and_g_opens_a_page(demo: Site, page: Page, axe: str) -> None:
    page.context.add_init_script(axe)
    demo.goto(page, "/clusters/demo", role="member")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert faults(page, *RULES) == []
    page.keyboard.press("Escape")
    press_at_once(page, "g", "n")
    page.wait_for_url("**/clusters/demo/nodes")


def test_keys_can_be_switched_off_and_do_nothing_in_fields(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/queue", role="member")
    page.get_by_role("searchbox").first.focus()
    page.keyboard.type("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.locator("h1").click()
    page.keyboard.press("?")
    page.get_by_label("Keys without Ctrl or ⌘ work").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search")).to_be_visible()


def test_the_menu_of_clusters_leads_to_the_same_page_of_another(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/nodes", role="member")
    page.get_by_role("button", name="Change the cluster").click()
    page.get_by_role("link", name="prod").click()
    page.wait_for_url("**/clusters/prod/nodes")
