"""The app of the page tests, served by uvicorn on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Page

from headway.services.app_state import AppState
from headway.services.read_model.live_state import LiveState
from headway.services.server_settings import Settings
from headway.store import open_store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers.server_fakes import shared_app
from tests.support.site import demo_state
from tests.support.site.snapshots import Snapshot

PEOPLE = {"admin": "ann", "operator": "olga", "lead": "lena", "member": "alice", "viewer": "victor"}


@dataclass
class Site:
    """The running server. Calls run on its own event loop."""

    url: str
    state: AppState
    backend: FakeBackend
    app: FastAPI
    loop: asyncio.AbstractEventLoop
    sessions: dict[str, str] = field(default_factory=dict)  # role -> cookie
    stop: Callable[[], None] = lambda: None

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on the server's loop and returns its result: `site.run(site.state.store.people.all())`."""
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(60)

    def put(self, snapshot: Snapshot | None, name: str = "demo") -> None:
        """Shows a cluster in this state; None removes it."""
        self.run(demo_state.put(self.state, self.backend, snapshot, name))

    def goto(self, page: Page, path: str = "/", *, role: str = "admin") -> None:
        """Opens a page, signed in as the person of PEOPLE with this role; "" = signed out."""
        if not role:
            page.context.clear_cookies(name=self.state.settings.cookie)
        else:
            if role not in self.sessions:
                self.sessions[role] = self.run(self._sign_in(PEOPLE[role], role))
            cookie = {"name": self.state.settings.cookie, "value": self.sessions[role], "url": self.url}
            page.context.add_cookies([cookie])  # type: ignore[list-item]
        page.goto(f"{self.url}{path}")

    def sign_out(self) -> None:
        """Ends all sessions."""
        for cookie in self.sessions.values():
            self.run(self.state.store.sessions.delete(cookie))
        self.sessions.clear()

    async def _sign_in(self, person: str, role: str) -> str:
        store = self.state.store
        await store.people.set_role(person, role)
        code, _ = await store.sessions.create_signin_code(person)
        spent = await store.sessions.redeem_signin_code(code)
        assert spent is not None
        return spent[1]


class _Server(uvicorn.Server):
    """A server that reports when it is ready, and leaves signals to pytest."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()


def serve(folder: Path) -> Iterator[Site]:
    """Yields the app on the folder's store."""
    backend = FakeBackend(**demo_state.answers())
    made: list[AppState] = []
    config = uvicorn.Config(lambda: None, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = _Server(config)

    async def run() -> None:
        store = await open_store(folder)
        settings = Settings(state_dir=folder, database="sqlite", cookie="headway_test")
        made.append(AppState(store, backend, LiveState(), settings))
        config.app = shared_app(made[0])
        await server.serve()
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert server.ready.wait(60), "uvicorn did not start"
    assert server.loop is not None
    port = server.servers[0].sockets[0].getsockname()[1]

    def stop() -> None:
        server.loop.call_soon_threadsafe(made[0].live.stopping.set)
        server.loop.call_soon_threadsafe(made[0].live.hub.close)
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "an open stream kept the server from stopping"

    site = Site(f"http://127.0.0.1:{port}", made[0], backend, config.app, server.loop, stop=stop)
    yield site
    if thread.is_alive():
        stop()
