"""The page under uvicorn on a free port with a fake Live, and Debian's Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import page_demo
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request

from headway.web.app import mount
from headway.web.live import Snapshot

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


@dataclass
class Site:
    """The running page. Calls reach the server's own loop."""

    url: str
    live: page_demo.FakeLive
    loop: asyncio.AbstractEventLoop
    people: dict[str, page_demo.Person | None] = field(default_factory=dict)
    stop: Callable[[], None] = lambda: None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a plain function on the server's loop and waits for its answer."""

        async def run() -> Any:
            return function(*args)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def put(self, snapshot: Snapshot | None, name: str = "demo") -> None:
        self.call(self.live.put, snapshot, name)

    def sign_out(self) -> None:
        self.people["now"] = None


class _Server(uvicorn.Server):
    """Says when it is ready; leaves signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests run last: Playwright keeps an event loop running in this thread, in which no async test can run."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture
def site() -> Iterator[Site]:
    live = page_demo.FakeLive()
    people: dict[str, page_demo.Person | None] = {"now": page_demo.Person()}

    async def principal(request: Request) -> page_demo.Person | None:
        return people["now"]

    app = FastAPI()
    mount(app, live, principal)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = _Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.ready.wait(15), "uvicorn did not start"
    assert server.loop is not None
    port = server.servers[0].sockets[0].getsockname()[1]

    def stop() -> None:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "an open stream kept the server from stopping"

    yield Site(f"http://127.0.0.1:{port}", live, server.loop, people, stop)
    stop()


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker's source, from the locked test libraries."""
    subprocess.run([sys.executable, "tools/assets.py", "--dev"], cwd=ROOT, check=True, timeout=300)
    return (ROOT / ".cache" / "assets" / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": args}
