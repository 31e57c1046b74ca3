"""The composition root: one process with the API, the page and the loops, on one state folder."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from headway import __version__
from headway.api.access import principal_of
from headway.api.app import create_app
from headway.api.live import Live
from headway.api.state import AppState, Settings
from headway.api.work import Work
from headway.errors import HeadwayError, Refused
from headway.server import files, logs, sudo
from headway.server.poll import Poller
from headway.server.reconcile import Reconciler
from headway.server.watching import Watcher
from headway.server.work import RealWork
from headway.store import Store, open_store
from headway.store.engine import database_url, shown_url

DEFAULT_PORT = 7878
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
SHUTDOWN_S = 3
BACKLOG = 512

log = structlog.get_logger("headway.server")
MakeWork = Callable[[Store, Path], Work]


def serve(
    state_dir: Path,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    url: str = "",
    *,
    dataset_roots: tuple[Path, ...] = (),
    make_work: MakeWork = RealWork,
) -> None:
    """Runs until SIGTERM or SIGINT. `url` is the database's; port 0 takes a free one, a port in use gives way to a free
    one when it is the default. Refused when another server holds the state folder."""
    os.umask(0o077)
    lock = files.take(state_dir)
    try:
        files.need_room(state_dir)
        logs.configure(state_dir)
        asyncio.run(_Server(state_dir, host, port, url, dataset_roots, make_work).run())
    except Exception as error:
        log.error("the server could not go on", error=str(error), exc_info=not isinstance(error, HeadwayError))
        raise
    finally:
        files.withdraw(state_dir)
        lock.close()


@dataclass
class _Server:
    state_dir: Path
    host: str
    port: int
    database: str
    dataset_roots: tuple[Path, ...]
    make_work: MakeWork

    async def run(self) -> None:
        began = time.monotonic()
        store = await open_store(self.state_dir, self.database)
        work = self.make_work(store, self.state_dir)
        try:
            # Bound before anything is written: a request waits in the socket's queue until the app is there.
            bound = bind(self.host, self.port)
            url = f"http://{_shown_host(self.host)}:{bound.getsockname()[1]}"
            token = await self._owner_token(store)
            state = AppState(store, work, Live(), self._settings(url))
            # The folder's lock is ours: whoever held leases under its name is dead.
            owner = f"{_folder_name(self.state_dir)}:"
            freed = await store.free_leases(owner)
            app = create_app(state)
            _mount_page(app, state)
            files.write_client(self.state_dir, url, token)
            await sudo.hand_over(store, self.state_dir, url)
            log.info("server starts", url=url, version=__version__, freed_leases=freed)
            await self._serve(app, bound, state, f"{owner}{os.getpid()}", url, began)
        finally:
            close: Callable[[], Awaitable[None]] | None = getattr(work, "close", None)
            if close is not None:
                await close()
            await store.close()
            log.info("server ends")

    async def _serve(
        self, app: FastAPI, bound: socket.socket, state: AppState, owner: str, url: str, began: float
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        http = _Http(config)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            state.live.stopping.set()
            state.live.hub.close()
            http.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

        def ready() -> None:
            files.announce(self.state_dir, url)
            gc.collect()
            gc.freeze()  # what is loaded by now stays: it need not be looked at again
            gc.enable()
            log.info("server ready", seconds=round(time.monotonic() - began, 3))

        http.on_started = ready
        watcher = state.work if hasattr(state.work, "step") else None
        loops = [
            asyncio.create_task(Reconciler(state, owner).run(), name="reconcile"),
            asyncio.create_task(Poller(state, _watcher(watcher)).run(), name="poll"),
        ]
        for task in loops:
            task.add_done_callback(_say_if_broken)
        try:
            await http.serve(sockets=[bound])
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def _settings(self, url: str) -> Settings:
        return Settings(
            state_dir=self.state_dir,
            url=url,
            database=shown_url(database_url(self.state_dir, self.database)),
            # Cookies know no ports: two servers of one host must not overwrite each other's.
            cookie=f"headway_{_folder_name(self.state_dir)}",
            allowed_hosts=("127.0.0.1", "localhost", "[::1]") if self.host in LOOPBACK else (),
            dataset_roots=self.dataset_roots,
        )

    async def _owner_token(self, store: Store) -> str:
        """The token of the person who started the server here; the first person of all is an admin."""
        token = str(files.read_client(self.state_dir).get("token") or "")
        if token and await store.person_of_token(token) is not None:
            return token
        name = files.starter()
        if await store.person(name) is None:
            await store.put_person(name, "admin")
        _, token = await store.create_token(name, label="made at the server's first start")
        return token


class _Http(uvicorn.Server):
    """uvicorn without its own signal handlers, which would end the process before the loops have let go."""

    on_started: Callable[[], None] = staticmethod(lambda: None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self.on_started()


def bind(host: str, port: int) -> socket.socket:
    """A listening address. The default port gives way to a free one; another that is taken is Refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for choice in dict.fromkeys((port, 0) if port == DEFAULT_PORT else (port,)):
        # With the protocol named, asyncio turns Nagle's delay off: without, a kept-alive request costs 40 ms.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, choice))
            sock.listen(BACKLOG)  # two sockets may be bound to one port, but only one listens
        except OSError as error:
            sock.close()
            if choice == DEFAULT_PORT:
                continue
            raise Refused(
                f"the server can't listen on {host} port {choice}: {error.strerror}",
                hint="HEADWAY_PORT=0 takes a free one",
            ) from None
        sock.set_inheritable(False)
        return sock
    raise Refused(f"the server can't listen on {host}", hint="HEADWAY_HOST")


def _mount_page(app: FastAPI, state: AppState) -> None:
    from headway.server.page import PageLive
    from headway.web.app import mount

    mount(app, PageLive(state), principal_of)


def _watcher(candidate: Any) -> Watcher | None:
    watcher: Watcher | None = candidate
    return watcher


def _say_if_broken(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a loop broke", loop=task.get_name(), exc_info=task.exception())


def _folder_name(state_dir: Path) -> str:
    """Names this state folder among others: in leases on a shared database, and in the cookie."""
    return hashlib.sha256(f"{socket.gethostname()}:{state_dir.resolve()}".encode()).hexdigest()[:12]


def _shown_host(host: str) -> str:
    if host in {"0.0.0.0", "::"}:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
