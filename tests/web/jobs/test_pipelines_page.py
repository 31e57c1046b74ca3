"""The page of a pipeline shows its steps as a graph, their outputs, and why a step is cached or skipped."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_pipeline_shows_steps_with_outputs_and_states(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/pipelines", role="member")
    page.get_by_role("link", name="tune").click()
    expect(page.locator(".graph__node")).to_have_count(5)
    expect(page.locator(".graph__edge")).to_have_count(5)
    rows = page.locator("tbody tr")
    expect(rows.filter(has_text="prepare.py")).to_have_count(0)
    expect(rows.nth(0)).to_contain_text("cached")
    expect(rows.nth(0)).to_contain_text("outputs of job 300: same content")
    expect(rows.nth(2)).to_contain_text("accuracy 0.8731")
    expect(rows.nth(3)).to_contain_text("skipped")
    expect(rows.nth(3)).to_contain_text("evaluate.accuracy is 0.8731, not >= 0.9")
