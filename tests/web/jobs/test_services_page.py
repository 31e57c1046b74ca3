"""The page of a service shows its address, figures and replicas; its owner can stop it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_service_shows_its_replicas_and_can_be_stopped(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/services", role="member")
    page.get_by_role("link", name="vision/chat").click()
    expect(page.locator("#service")).to_contain_text("http://10.0.0.10:8470/serve/vision/chat/")
    expect(page.get_by_role("row", name="serving")).to_contain_text("1,234")
    expect(page.get_by_role("row", name="exit code 1")).to_contain_text("failed")
    expect(page.get_by_role("row", name="all")).to_contain_text("1,240")
    expect(page.get_by_role("row", name="all")).to_contain_text("0.2 %")
    expect(page.get_by_role("row", name="14 requests run or wait")).to_have_count(1)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#service .head")).to_contain_text("stopped it")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
