"""People at the dashboard of a real cluster's server, each in their own browser window."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.cluster.lab import PATIENCE_S, Lab

from headway.schemas.access.tokens import TokenIn
from headway.sdk.client import Client

CHROMIUM = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields a browser. It is started and ended here and not by pytest-playwright, whose event loop would stay in
    this thread, where async tests run as well."""
    expect.set_options(timeout=PATIENCE_S * 1000)  # generous: tests assert order and outcome, not speed
    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()
    expect.set_options(timeout=5_000)  # Playwright's default, for other tests


@dataclass
class Dashboard:
    """The dashboard of a lab's server: `as_(person, role)` returns a window in which that person is signed in."""

    lab: Lab
    browser: Browser
    _opened: list[BrowserContext] = field(default_factory=list)
    _said: list[str] = field(default_factory=list)

    def as_(self, person: str = "", role: str = "") -> Page:
        """Returns a window in which the person, created if missing, has signed in by their link; "" is the server's
        first admin."""
        link = self._link(person, role)
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        self._opened.append(context)
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: self._said.append(f"{page.url}: {error}"))
        page.on(
            "console", lambda m: self._said.append(f"{page.url}: {m.text}") if "Content Security" in m.text else None
        )
        page.goto(link)
        expect(page.get_by_role("heading", name="Clusters")).to_be_visible()
        return page

    def _link(self, person: str, role: str) -> str:
        if not person:
            return self.lab.client.tokens.sign_in_link().url
        made = self.lab.client.tokens.create(TokenIn.model_validate({"person": person, "role": role}))
        with Client(self.url, made.token or "") as theirs:
            return theirs.tokens.sign_in_link().url

    @property
    def url(self) -> str:
        return self.lab.client.url

    def go(self, page: Page, path: str) -> None:
        page.goto(f"{self.url}{path}")

    def close(self) -> None:
        """Closes all windows. Raises AssertionError if a page's script failed or attempted what the content policy
        forbids."""
        for context in self._opened:
            context.close()
        said, self._said = self._said, []
        assert said == []


def number_in(page: Page, kind: str) -> int:
    """Waits until the page's address ends with the number of a job or incident, and returns it."""
    expect(page).to_have_url(re.compile(rf"/{kind}/\d+$"))
    return int(page.url.rpartition("/")[2])
