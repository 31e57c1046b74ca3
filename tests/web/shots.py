"""Pictures of the page in all its states, to look at: `python tests/web/shots.py FOLDER [NAME...]`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import conftest
import page_demo
from playwright.sync_api import sync_playwright


def main(folder: Path, names: list[str]) -> None:
    """One picture a state, theme and width."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.contextmanager(conftest.site.__wrapped__)() as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=conftest.CHROMIUM, args=["--no-sandbox"])
        for name in names or page_demo.STATES:
            site.put(page_demo.STATES[name]())
            for scheme in ("light", "dark"):
                for width, height in ((1440, 900), (360, 780)):
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
                    )
                    page = context.new_page()
                    page.goto(f"{site.url}/")
                    page.wait_for_function("document.querySelector('#fabric')")
                    page.wait_for_timeout(400)
                    page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
                    context.close()
        site.put(page_demo.STATES["stale"](), "prod")
        pictures = [("list", "/clusters"), ("error", "/clusters/none"), ("door", "/")] if not names else []
        for name, path in pictures:
            site.people["now"] = None if name == "door" else page_demo.Person()
            page = browser.new_page(viewport={"width": 1280, "height": 700})
            page.goto(f"{site.url}{path}")
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
