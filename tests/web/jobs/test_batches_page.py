"""The page of a batch shows its progress; its owner can stop it, and retry one that has failed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.site.server import Site

pytestmark = pytest.mark.browser


def test_batch_shows_its_progress_and_can_be_stopped(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/batches", role="member")
    expect(page.get_by_role("row", name="answers")).to_contain_text("39,000 of 1,000,000")
    page.get_by_role("link", name="answers").click()
    expect(page.locator("#batch")).to_contain_text("3.9 %")
    expect(page.locator("#batch")).to_contain_text("4.00 USD")
    expect(page.locator("#batch")).to_contain_text("the row has no text")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#batch .head")).to_contain_text("stopped it")


def test_batch_that_has_failed_can_be_retried(demo: Site, page: Page) -> None:
    demo.goto(page, "/clusters/demo/batches/labels", role="member")
    expect(page.locator("#batch .head")).to_contain_text("could not be loaded")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#batch .head")).to_contain_text("submitting")
