"""A backend that answers only the calls registered by a test, and an app on a real SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import structlog
from fastapi import FastAPI

from headway.api.app import create_app
from headway.api.auth.dependencies import require_right
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.cluster import Cluster
from headway.domain.slots import Deadline
from headway.domain.slurm.state import JobState
from headway.errors import Fault, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.server.live_data import PageLive
from headway.server.workers.operation_worker import OperationWorker
from headway.services.app_state import AppState, Settings
from headway.services.cluster_backend import ResolvedCluster, SlurmReading
from headway.services.identity import Right
from headway.services.read_model.snapshot import OPERATIONS_TOPIC, LiveState
from headway.store import Store
from headway.web.app import mount
from tests.support import builders

URL = "http://127.0.0.1:7878"


def document(name: str = "lab", **spec: Any) -> Document:
    """Returns the document of a minimal cluster file; `spec` adds fields."""
    return Document(text=f"name: {name}\n", spec={"name": name, "plan": "h100-8", "nodes": 4, **spec})


def changes(*disturbs: Disturbs, cluster: str = "lab") -> ChangeSet:
    """Returns a ChangeSet with one change per disturbance; without any, an empty one."""
    rows = tuple(Change("unit.restart", f"{cluster}-head", f"unit{i}", "why", d) for i, d in enumerate(disturbs))
    return ChangeSet(cluster, rows, "" if rows else "everything is as the file says")


class FakeBackend:
    """Stands in for the cluster backend: `answers` maps the name of a call to a value or function; other calls fail
    the test."""

    def __init__(self, **answers: Any) -> None:
        # A cluster's accounting is read before each down, whatever a test is about.
        self.answers: dict[str, Any] = {
            "accounting": (),
            "node_events": (),
            "losses": {},
            "saves": {},
            "wants_roll": False,
            "said": None,
            **answers,
        }
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.tags: list[str] = []  # idempotency tags of submissions
        self.deadline: Deadline | None = None  # deadline of the last apply
        self.waiting: Any = None  # the `waiting` argument of the last apply
        self.clusters: dict[str, dict[str, Any]] = {}  # further fields of a resolved cluster, by name
        self.whole: dict[str, Cluster] = {}  # complete clusters by name, where the builders' cluster does not suffice

    def named(self, call: str) -> list[tuple[Any, ...]]:
        return [args for name, args in self.calls if name == call]

    def resolve(self, document: Document) -> ResolvedCluster:
        spec = document.spec
        if "fault" in spec:
            raise InvalidSpec([Fault("nodes", "must be at least 1"), Fault("fault", "unknown field")])
        warnings = (Fault("spares", "no spare", level="warning"),) if spec.get("warn") else ()
        if spec["name"] in self.whole:
            return ResolvedCluster(self.whole[spec["name"]], warnings)
        more = self.clusters.get(spec["name"], {})
        return ResolvedCluster(builders.cluster(spec["nodes"], name=spec["name"], **more), warnings)

    async def _call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, args))
        assert name in self.answers, f"unregistered call: {name}{args}"
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = answer(*args)
            if isinstance(answer, Awaitable):
                answer = await answer
        return answer

    async def plan(self, cluster: Cluster) -> Any:
        return await self._call("plan", cluster)

    async def apply(self, cluster: Cluster, say: Any, deadline: Deadline | None = None, waiting: Any = None) -> Any:
        self.deadline, self.waiting = deadline, waiting
        return await self._call("apply", cluster, say)

    async def down(self, cluster: Cluster, say: Any, delete_data: bool) -> Any:
        return await self._call("down", cluster, say, delete_data)

    async def back_up(self, cluster: Cluster, about: Any, say: Any, path: Path, header: Any, key: bytes) -> Any:
        return await self._call("back_up", cluster, about, say, path, header, key)

    async def restore(self, cluster: Cluster, say: Any, path: Path, key: bytes, ref: str) -> Any:
        return await self._call("restore", cluster, say, path, key, ref)

    async def rotate(self, cluster: Cluster, say: Any, what: str, ref: str, begins: Any) -> Any:
        if not isinstance(self.answers.get("rotate"), Refused):  # with nothing changed
            await begins()
        return await self._call("rotate", cluster, say, what, ref)

    async def replace(self, cluster: Cluster, say: Any, node: str, since: float | None) -> Any:
        return await self._call("replace", cluster, say, node, since)

    async def storage_bench(self, cluster: Cluster, node: str, mib: int) -> Any:
        return await self._call("storage_bench", cluster, node, mib)

    async def shelf(self, cluster: Cluster) -> Any:
        return await self._call("shelf", cluster)

    async def rooms(self, cluster: Cluster) -> Any:
        return await self._call("rooms", cluster)

    async def checks(self, cluster: Cluster) -> Any:
        return await self._call("checks", cluster)

    async def plan_roll(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> Any:
        return await self._call("plan_roll", cluster, back, head, by)

    async def roll(self, cluster: Cluster, say: Any, waits: Any, *, back: bool, until: float | None) -> Any:
        return await self._call("roll", cluster, say, waits, back, until)

    async def roll_head(self, cluster: Cluster, say: Any, *, back: bool) -> Any:
        return await self._call("roll_head", cluster, say, back)

    async def image_there(self, cluster: Cluster, say: Any) -> Any:
        return await self._call("image_there", cluster, say)

    async def wants_roll(self, cluster: Cluster) -> Any:
        return await self._call("wants_roll", cluster)

    async def halt_roll(self, cluster: Cluster, say: Any) -> Any:
        return await self._call("halt_roll", cluster, say)

    async def machines(self, cluster: Cluster) -> Any:
        return await self._call("machines", cluster)

    async def read(self, cluster: Cluster) -> Any:
        return await self._call("read", cluster)

    async def shares(self, cluster: Cluster) -> Any:
        return await self._call("shares", cluster)

    async def job(self, cluster: Cluster, job_id: int) -> Any:
        return await self._call("job", cluster, job_id)

    async def jobs_now(self, cluster: Cluster, numbers: tuple[int, ...]) -> Any:
        return await self._call("jobs_now", cluster, numbers)

    async def history(self, cluster: Cluster) -> Any:
        return await self._call("history", cluster)

    async def said(self, cluster: Cluster, job: JobState) -> Any:
        return await self._call("said", cluster, job)

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> Any:
        return await self._call("progress", cluster, jobs)

    async def submit(self, cluster: Cluster, request: Any, user: str, stage: Any = None, *, tag: str = "") -> Any:
        self.tags += [tag] if tag else []
        return await self._call("submit", cluster, request, user, *([stage] if stage else []))

    async def keep_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> Any:
        return await self._call("keep_bundle", cluster, user, root, digest, archive)

    async def array(self, cluster: Cluster, job_id: int) -> Any:
        return await self._call("array", cluster, job_id)

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> Any:
        return await self._call("cancel", cluster, job, user, as_operator)

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> Any:
        return await self._call("control", cluster, job, verb, user, as_operator)

    async def runs(self, cluster: Cluster, job_id: int) -> Any:
        return await self._call("runs", cluster, job_id)

    async def log_part(self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool) -> Any:
        return await self._call("log_part", cluster, job, before, lines, err)

    async def log_search(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> Any:
        return await self._call("log_search", cluster, job, text, err)

    async def run_command(self, cluster: Cluster, request: Any, user: str) -> Any:
        return await self._call("run_command", cluster, request, user)

    async def tail_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        for piece in await self._call("tail_log", cluster, job, follow, err, *([start] if start else [])):
            yield piece

    async def task(self, cluster: Cluster, job_id: int, task: str) -> Any:
        return await self._call("task", cluster, job_id, task)

    async def tail_array(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        for piece in await self._call("tail_array", cluster, job_id, follow, err):
            yield piece

    async def converse(
        self, cluster: Cluster, argv: Any, user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        self.calls.append(("converse", (cluster, argv, user, feed)))
        async for piece in self.answers["converse"](cluster, argv, user, feed):
            yield piece

    async def tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Any:
        return await self._call("tunnel", cluster, node, user, path)

    async def bring_back(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Any:
        return await self._call("bring_back", cluster, number, person, false_alarm)

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> Any:
        return await self._call("drain_node", cluster, node, reason, person)

    async def return_node(self, cluster: Cluster, node: str, person: str) -> Any:
        return await self._call("return_node", cluster, node, person)

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Any:
        return await self._call("reboot_node", cluster, node, person, busy)

    async def reboot_again(self, cluster: Cluster, node: str) -> Any:
        return await self._call("reboot_again", cluster, node)

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> Any:
        return await self._call("test_node", cluster, node, hard)

    async def metrics(self, cluster: Cluster, queries: Any, start: float, end: float, step_s: int) -> Any:
        return await self._call("metrics", cluster, queries, start, end, step_s)

    async def accounting(self, cluster: Cluster, since: int, until: int) -> Any:
        return await self._call("accounting", cluster, since, until)

    async def node_events(self, cluster: Cluster, since: int) -> Any:
        return await self._call("node_events", cluster, since)

    async def losses(self, cluster: Cluster) -> Any:
        return await self._call("losses", cluster)

    async def saves(self, cluster: Cluster) -> Any:
        return await self._call("saves", cluster)

    async def hold_back(self, cluster: Cluster, team: str, *, on: bool) -> Any:
        return await self._call("hold_back", cluster, team, on)

    async def tell(self, cluster: Cluster, news: Any) -> Any:
        return await self._call("tell", cluster, news)

    async def inject(self, cluster: Cluster, fault: Any) -> Any:
        return await self._call("inject", cluster, fault)

    async def forget(self, cluster: str) -> None:
        self.calls.append(("forget", (cluster,)))


class _Page:
    """The state that the dashboard of the shared app reads: always that of the newest server."""

    def __init__(self) -> None:
        self.of: PageLive | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


_shared: list[tuple[FastAPI, _Page]] = []


def shared_app(state: AppState) -> FastAPI:
    """Returns the app with its pages on this state. FastAPI takes far longer to create an app than most tests to
    run, so a process creates one, and each server of a test takes it over from the previous one."""
    if not _shared:
        made, shown = create_app(state), _Page()
        mount(made, cast(PageLive, shown), require_right(Right.READ))  # sign-in is a page
        _shared.append((made, shown))
    app, page = _shared[0]
    app.state.headway, page.of = state, PageLive(state)
    return app


class Server:
    """The app without a server process: its state, one HTTP client per person, and operations that run on request."""

    def __init__(self, state: AppState, work: FakeBackend, store: Store) -> None:
        self.state, self.work, self.store = state, work, store
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
    work = FakeBackend(**answers)
    store = await builders.store(folder, clock)
    settings = Settings(
        state_dir=folder,
        url=URL,
        notebooks="http://*.notebooks.localhost:7879",
        database="sqlite",
        cookie="headway_test",
    )
    return Server(AppState(store, work, LiveState(clock), settings, clock), work, store)


def reading(*jobs: JobState, nodes: Any = None) -> SlurmReading:
    """Returns a reading of Slurm with these jobs and, by default, two nodes."""
    default = (builders.node("lab-1-1", "IDLE"), builders.node("lab-1-2", "MIXED"))
    return SlurmReading(default if nodes is None else nodes, jobs)
