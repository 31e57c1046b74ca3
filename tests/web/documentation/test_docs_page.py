"""The documentation site works in a real browser under the server's content policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from headway.web.documentation import SITE, site_is_built
from tests.support.site.server import Site

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not site_is_built(), reason="needs the site: make docs")]

NOTE_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', event => {
  document.documentElement.dataset.refused = event.violatedDirective + ' ' + event.blockedURI;
});
"""


def test_docs_can_be_read_and_searched_under_the_content_policy(site: Site, page: Page) -> None:
    problems: list[str] = []
    page.add_init_script(NOTE_VIOLATIONS)
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    other_hosts: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(site.url) else other_hosts.append(request.url))
    site.goto(page, "/clusters/none")  # any page of the dashboard
    expect(page.locator("footer a")).to_have_attribute("href", re.compile(r"^/docs/"))
    problems.clear()  # the cluster does not exist
    page.goto(f"{site.url}/docs")
    expect(page.locator("h1")).to_have_text("Headway")
    page.locator("article a", has_text="Run jobs").first.click()
    expect(page.locator("h1")).to_have_text("Run jobs")
    expect(page.locator("html")).to_have_class(re.compile(r"\bjs\b"))
    # The page searches when a key is released, and not for text that is set at once.
    page.locator("input.md-search__input").press_sequentially("spare")
    expect(page.locator("li.md-search-result__item").first).to_be_visible()
    assert page.locator("html").get_attribute("data-refused") is None
    assert problems == []
    assert other_hosts == []


def test_docs_pages_have_no_inline_scripts_or_external_hosts() -> None:
    for path in Path(SITE).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*(src=|application/json))", text), path
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"?https?:", text), path
