"""Takes pictures of every page (page_list.py) on the furnished site. `make screenshots` runs it; for some pages only:
`python tests/support/site/screenshots.py FOLDER NAME...`.

Each picture is taken in light, dark and on a phone; index.html in the same folder shows all of them. `--readme
FOLDER` takes those of the README instead.
"""

from __future__ import annotations

import argparse
import base64
import html
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.site import demo_state, snapshots
from tests.support.site.browser import CHROMIUM, wait_until_still
from tests.support.site.page_list import PLACES, Place
from tests.support.site.server import Site, serve

KINDS: dict[str, tuple[Any, int, int]] = {
    "light": ("light", 1280, 900),
    "dark": ("dark", 1280, 900),
    "phone": ("light", 360, 780),
}
README = (
    Place("overview", "/clusters/demo"),
    Place("queue", "/clusters/demo/queue"),
    Place("job", "/clusters/demo/jobs/104", role="member"),
    Place("fabric", "/clusters/large/nodes"),
    Place("goodput", "/clusters/demo/costs?section=goodput"),
)


@contextmanager
def furnished() -> Iterator[Site]:
    """Yields a served site with the demo's clusters."""
    with tempfile.TemporaryDirectory() as folder:
        for site in serve(Path(folder)):
            site.run(demo_state.furnish(site.state, site.backend))
            yield site


def window(browser: Browser, kind: str, **more: Any) -> Page:
    """Returns a browser page of this kind: light, dark or phone."""
    scheme, width, height = KINDS[kind]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height}, **more)
    return context.new_page()


def every(folder: Path, names: list[str]) -> int:
    """Takes pictures of all pages, or of those with these names, and returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    places = [place for found in PLACES.values() for place in found if not names or place.name in names]
    with furnished() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for kind in KINDS:
            page = window(browser, kind)
            for place in places:
                site.goto(page, place.path, role=place.role)
                wait_until_still(page)
                file = folder / f"{place.name}-{kind}.png"
                page.screenshot(path=file, full_page=True, animations="disabled")
            page.context.close()
        browser.close()
    (folder / "index.html").write_text(sheet(places))
    return len(places) * len(KINDS)


def sheet(places: list[Place]) -> str:
    """Returns the contact sheet as HTML."""
    rows = []
    for place in places:
        name = html.escape(place.name)
        pictures = "".join(
            f'<a href="{name}-{kind}.png"><img src="{name}-{kind}.png" alt="{name}, {kind}" class="{kind}" loading="lazy"></a>'
            for kind in KINDS
        )
        who = f" as {place.role}" if place.role else " signed out"
        rows.append(
            f"<section><h2>{name} <small>{html.escape(place.path)}{who}</small></h2><div>{pictures}</div></section>"
        )
    style = (
        "body{font:14px system-ui;margin:24px;background:#888}h2 small{font-weight:400}div{display:flex;gap:12px;"
        "align-items:start}img{width:36vw;border:1px solid #0006}img.phone{width:14vw}"
    )
    return f"<!doctype html><meta charset=utf-8><title>Every page</title><style>{style}</style>{''.join(rows)}\n"


def readme(folder: Path) -> int:
    """Takes small pictures, light and dark, of the pages that show Headway best, and returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    with furnished() as site, sync_playwright() as playwright:
        site.put(snapshots.renamed(snapshots.large(), "large"), "large")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for kind in ("light", "dark"):
            page = window(browser, kind)
            camera = page.context.new_cdp_session(page)  # Playwright itself writes no WebP
            for place in README:
                site.goto(page, place.path, role=place.role)
                wait_until_still(page)
                shot = camera.send("Page.captureScreenshot", {"format": "webp", "quality": 60})
                (folder / f"{place.name}-{kind}.webp").write_bytes(base64.b64decode(shot["data"]))
            page.context.close()
        browser.close()
    return 2 * len(README)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--readme", action="store_true")
    ask = parser.parse_args()
    began = time.monotonic()
    count = readme(ask.folder) if ask.readme else every(ask.folder, ask.names)
    sys.stdout.write(f"{count} pictures in {ask.folder}, {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
