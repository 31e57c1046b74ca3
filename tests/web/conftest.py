"""Fixtures that serve every page by uvicorn on a free port: the real app on a temporary store, with a FakeBackend and
Debian's Chromium.

    def test_x(demo: Site, page: Page) -> None:      # `site` is the same without any cluster
        demo.backend.answers["cancel"] = None           # a call that the page may make; unregistered calls fail
        demo.goto(page, "/clusters/demo", role="operator")

`site.put(snapshots.broken())` shows a cluster in another state; open pages are updated.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headway.store import open_store
from tests.support.site import demo_state
from tests.support.site.browser import CHROMIUM
from tests.support.site.server import Site, serve

ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves browser tests to the end: Playwright keeps an event loop running in this thread, in which no async test
    can run."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """Raises Playwright's limit of five seconds, which is short on a busy machine: tests assert order and outcome."""
    expect.set_options(timeout=60_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with an empty database at the newest migration and its key, to be copied."""
    folder = tmp_path_factory.mktemp("database")

    async def make() -> None:
        await (await open_store(folder)).close()

    asyncio.run(make())
    return folder


@pytest.fixture
def site(tmp_path: Path, database: Path) -> Iterator[Site]:
    shutil.copytree(database, tmp_path, dirs_exist_ok=True)
    yield from serve(tmp_path)


@pytest.fixture
def demo(site: Site) -> Site:
    """Returns the site with clusters in several states, people, teams and incidents."""
    site.run(demo_state.furnish(site.state, site.backend))
    return site


@pytest.fixture(scope="session")
def axe() -> str:
    """Returns the accessibility checker's source, from the locked test libraries."""
    subprocess.run([sys.executable, "tools/assets.py", "--dev"], cwd=ROOT, check=True, timeout=300)
    return (ROOT / ".cache" / "assets" / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": args}
