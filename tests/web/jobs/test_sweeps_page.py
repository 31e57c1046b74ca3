"""The page of a sweep shows its trials and the best one; its owner can stop it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_sweep_shows_its_trials_and_can_be_stopped(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/sweeps", role="member")
    page.get_by_role("link", name="lr-search").click()
    expect(page.locator("tr.is-best")).to_contain_text("2.05")
    expect(page.locator("circle.swept__trial")).to_have_count(11)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#sweep .head")).to_contain_text("stopped it")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
