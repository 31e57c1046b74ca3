"""A backend that answers only the calls registered by a test, and an app on a real SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import structlog
from fastapi import FastAPI

from headway.api.app import create_app
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.clusters import Document
from headway.server.workers.operation_worker import OperationWorker
from headway.services.app_state import AppState
from headway.services.cluster_backend import SlurmReading
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.topic_hub import OPERATIONS_TOPIC
from headway.services.server_settings import Settings
from headway.store import Store
from headway.web.app import mount
from tests.support.clusters import builders
from tests.support.clusters.fake_backend import FakeBackend

URL = "http://127.0.0.1:7878"


def document(name: str = "lab", **spec: Any) -> Document:
    """Returns the document of a minimal cluster file; `spec` adds fields."""
    return Document(text=f"name: {name}\n", spec={"name": name, "plan": "h100-8", "nodes": 4, **spec})


def changes(*disturbs: Disturbs, cluster: str = "lab") -> ChangeSet:
    """Returns a ChangeSet with one change per disturbance; without any, an empty one."""
    rows = tuple(Change("unit.restart", f"{cluster}-head", f"unit{i}", "why", d) for i, d in enumerate(disturbs))
    return ChangeSet(cluster, rows, "" if rows else "everything is as the file says")


_shared: list[FastAPI] = []


def shared_app(state: AppState) -> FastAPI:
    """Returns the app with its pages on this state. FastAPI takes far longer to create an app than most tests to
    run, so a process creates one, and each server of a test takes it over from the previous one."""
    if not _shared:
        made = create_app(state)
        mount(made)  # sign-in is a page
        _shared.append(made)
    _shared[0].state.headway = state
    return _shared[0]


class Server:
    """The app without a server process: its state, one HTTP client per person, and operations that run on request."""

    def __init__(self, state: AppState, backend: FakeBackend, store: Store) -> None:
        self.state, self.backend, self.store = state, backend, store
        self.app = shared_app(state)
        self._clients: list[httpx.AsyncClient] = []

    async def client(self, person: str = "ann", role: str = "admin", **headers: str) -> httpx.AsyncClient:
        """Returns an HTTP client with a new token of the person, who receives the role."""
        await self.store.people.set_role(person, role)
        _, token = await self.store.tokens.create(person)
        return self.anonymous(authorization=f"Bearer {token}", **headers)

    def anonymous(self, **headers: str) -> httpx.AsyncClient:
        """Returns an HTTP client without a token."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url=URL, headers=headers)
        self._clients.append(client)
        return client

    async def work_off(self) -> None:
        """Runs the operation worker until no operation is unfinished."""
        task = asyncio.create_task(OperationWorker(self.state, "test:1").run())
        self.state.wake.set()
        try:
            async with asyncio.timeout(60):
                while True:
                    number = self.state.live.hub.version(OPERATIONS_TOPIC)
                    if not [o async for o in self._unfinished()]:
                        return
                    await self.state.live.hub.wait_for_change(OPERATIONS_TOPIC, number)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _unfinished(self) -> AsyncIterator[str]:
        for operation in await self.store.operations.recent():
            if not operation.finished:
                yield operation.id

    async def apply(self, name: str = "lab", **spec: Any) -> None:
        """Applies a cluster through the API and waits until it is ready."""
        self.backend.answers.setdefault("apply", None)
        self.backend.answers.setdefault("plan", changes(Disturbs.NOTHING, cluster=name))
        client = await self.client("setup")
        ask = {"document": document(name, **spec).model_dump()}
        answer = await client.post(f"/api/v1/clusters/{name}/apply", json=ask)
        assert answer.status_code == 202, answer.text
        await self.work_off()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        await self.store.close()


async def start(folder: Path, clock: Callable[[], float], **answers: Any) -> Server:
    """Returns a server on a new store in `folder`; `answers` are those of its backend."""
    structlog.configure(processors=[lambda *_: ""], logger_factory=structlog.ReturnLoggerFactory())
    backend = FakeBackend(**answers)
    store = await builders.store(folder, clock)
    settings = Settings(
        state_dir=folder,
        url=URL,
        notebooks="http://*.notebooks.localhost:7879",
        database="sqlite",
        cookie="headway_test",
        offers_url="http://127.0.0.1:9",  # no test leaves this machine
    )
    return Server(AppState(store, backend, LiveState(clock), settings, clock), backend, store)


def reading(*jobs: JobState, nodes: Any = None) -> SlurmReading:
    """Returns a reading of Slurm with these jobs and, by default, two nodes."""
    default = (builders.node("lab-1-1", "IDLE"), builders.node("lab-1-2", "MIXED"))
    return SlurmReading(default if nodes is None else nodes, jobs)


class ListeningTunnel:
    """A tunnel to a Jupyter that accepts connections."""

    alive = True

    async def connect(self) -> Any:
        return self

    async def close(self) -> None: ...
