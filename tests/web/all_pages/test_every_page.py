"""Every page loads, is in the table, passes axe, fits a phone's width, and is small."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, Response

from headway.web.page_routes import PageRoute
from tests.support.site import demo_state
from tests.support.site.browser import RULES, faults, wait_until_still
from tests.support.site.page_list import NO_PAGE, PLACES, Place
from tests.support.site.server import Site, serve

pytestmark = pytest.mark.browser
MOST_BYTES = 150_000  # of one page with all its files over the network, with an empty cache, without TERMINAL
TERMINAL = "/static/vendor/xterm"  # the emulator, which is loaded on the terminal's page alone
EVERY = [place for places in PLACES.values() for place in places]


@dataclass
class Look:
    """A browser window that visits page after page, and the messages since the last page."""

    scheme: str
    width: int
    rules: tuple[str, ...]
    page: Page
    said: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    fetched: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda m: self.said.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("requestfinished", lambda request: self.fetched.append(request))  # an open stream never finishes
        if self.rules == RULES:  # here each page is weighed with an empty cache
            self.page.context.new_cdp_session(self.page).send("Network.setCacheDisabled", {"cacheDisabled": True})
        self.page.on("response", self._answered)

    def _answered(self, answer: Response) -> None:
        if answer.request.is_navigation_request():
            self.answers.append(answer.status)


@pytest.fixture(scope="module")
def furnished(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yields a site like `demo`, shared by these tests because they only read."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(database, folder, dirs_exist_ok=True)
    for site in serve(folder):
        site.run(demo_state.furnish(site.state, site.backend))
        yield site


@pytest.fixture(scope="module")
def looks(browser: Browser, axe: str) -> Iterator[list[Look]]:
    """Yields two windows: light and wide, then dark on a phone, where axe checks colours and sizes only."""
    made = []
    for scheme, width, rules in (("light", 1280, RULES), ("dark", 360, ("color-contrast", "target-size"))):
        how: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        context = browser.new_context(**how)
        context.add_init_script(axe)  # read once, not once per page
        made.append(Look(scheme, width, rules, context.new_page()))
    yield made
    for look in made:
        look.page.context.close()


def test_page_table_lists_every_page_route(site: Site) -> None:
    known = site.app.routes
    pages = {r.path for r in known if isinstance(r, PageRoute) and "GET" in r.methods}
    assert sorted(pages - NO_PAGE - PLACES.keys()) == [], "add them to tests/support/site/page_list.py"
    assert sorted(PLACES.keys() - pages) == [], "pages that are gone"


@pytest.mark.parametrize("place", EVERY, ids=lambda place: place.name)
def test_every_page_passes_axe_width_and_size_checks(furnished: Site, looks: list[Look], place: Place) -> None:
    assert [text for look in looks for text in _faults(furnished, look, place)] == []


def _faults(site: Site, look: Look, place: Place) -> list[str]:
    """Returns the errors of axe, the content policy, the console and the width check."""
    look.said.clear()
    look.answers.clear()
    look.fetched.clear()
    site.goto(look.page, place.path, role=place.role)
    found = [] if look.answers[0] == place.status else [f"answered {look.answers[0]}"]
    wait_until_still(look.page)  # a button that is being enabled has neither of its two colours
    found += faults(look.page, *look.rules)
    if (total := wire_bytes(look.fetched)) > MOST_BYTES:
        found.append(f"{total} bytes over the wire")
    wide = look.page.evaluate("document.documentElement.scrollWidth")
    if wide > look.width:
        found.append(f"{wide} px wide")
    found += [text for text in look.said if f"status of {place.status}" not in text]
    return [f"{look.scheme} {look.width}: {text}" for text in found]


def wire_bytes(fetched: list[Request]) -> int:
    """Returns the bytes received over the network, including the headers of responses, of all but the terminal's emulator. Fails
    if another page than the terminal's loads that."""
    emulator = [request for request in fetched if TERMINAL in request.url]
    assert all("/terminal" in request.frame.url for request in emulator)
    sizes = [request.sizes() for request in fetched if request not in emulator]
    return sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes)
