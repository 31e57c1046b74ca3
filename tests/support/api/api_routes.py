"""The app with one person of each role, and every route with the values that its address and body take."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from headway.cluster.slurm_export.export import SlurmExport
from headway.domain.dataset import DatasetVersion
from headway.domain.environment import EnvironmentVersion
from headway.domain.teams import Team, User
from headway.errors import Unreachable
from headway.jobs.metrics.metric_files import JobMetrics, Metric
from headway.schemas.access.scim import USER_SCHEMA
from headway.schemas.base import API_PREFIX
from headway.schemas.jobs import LogFoundOut, LogPartOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.cluster_backend import SlurmReading
from headway.services.jobs.trainings.stored_trainings import training_row
from headway.store import NotebookRow, ServiceRow, Store
from headway.store.jobs.pipeline_schedules import PipelineScheduleRow, schedule_id
from tests.support.api.access_table import BATCH, SERVICE_FILE, SWEEP_FILE, Row
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.fake_mlflow import FakeMlflow
from tests.support.servers.server_fakes import Server

# The person of each role; all but bob are in the team `red`, which lee leads.
PEOPLE = {"viewer": "vic", "member": "mem", "lead": "lee", "operator": "opa", "admin": "ada"}
MATE, STRANGER = "tim", "bob"
ROLE = {person: role for role, person in PEOPLE.items()} | {MATE: "member", STRANGER: "member"}
EVERYBODY = tuple(ROLE)
JOBS = {person: number for number, person in enumerate(EVERYBODY, 11)}
ENVIRONMENT = EnvironmentVersion("lab", "tools", 1, "0" * 64, "3.13.5", 1, 1, "requirements.txt", "", "ann", 1.0, 7)
SWEEP = {"file": SWEEP_FILE, "mark": "m", "bundle": "", "git": None, "usd_per_hour": None, "gpus": 0}
BATCH_DOCUMENT = {
    "request": BATCH, "mark": "m", "rows": "/scratch/rows.jsonl", "folder": "/s", "worker": "/w", "usd_per_hour": None,
}  # fmt: skip
SERVICE = {"file": SERVICE_FILE, "mark": "m", "bundle": "", "git": None}
DOCUMENT = {"name": "p", "steps": {"one": {"run": "true"}}}
# Of each job: what list_job_files prints
FILES_OF_JOB = base64.b64encode(b'{"checkpoints": ["step-00004000"], "used": []}').decode()


def key_of(method: str, path: str) -> str:
    """Returns the route's key in access_table.TABLE."""
    inside = path.startswith(f"{API_PREFIX}/")
    return f"{method} " + (f"api/{path.removeprefix(API_PREFIX + '/')}" if inside else path)


def routes(server: Server) -> Iterator[tuple[str, str, str]]:
    """Yields (key, method, path) of each route of the app."""
    for context in iter_route_contexts(server.app.routes):
        if not context.methods:
            # Folders of files without access control. The documentation is mounted where it is built.
            assert context.name in ("static", "docs"), f"what is {context.path}? teach this test to walk it"
        for method in sorted((context.methods or set()) - {"HEAD", "OPTIONS"}):
            yield key_of(method, context.path or ""), method, context.path or ""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """The app with its pages, one cluster with two teams, on a Work that answers whatever gets as far as it."""
    done = SubmitOut(job_id=11, cluster="lab", user="x", workdir="/home/x")
    made = await server_fakes.start(
        tmp_path,
        builders.Clock(),
        shares=(),
        plan=server_fakes.changes(),
        plan_rollout=server_fakes.changes(),
        machines=(builders.machine("lab-head"),),
        readiness_checks=(),
        slurm_export=SlurmExport({}, (), ()),
        history=(),
        head_local_time=datetime.fromisoformat("2099-01-01T10:00"),
        submit=done,
        cancel=None,
        array_states={},
        open_tunnel=Unreachable("nothing answers there"),
        store_bundle=True,
        run_command=ExecOut(code=0, stdout_b64=FILES_OF_JOB),
        job_runs=(),
        control=None,
        install_job_secrets=(),
        log_part=LogPartOut(text="", start=0, end=0, size=0),
        search_log=LogFoundOut(found=[]),
        follow_log=[b""],
        follow_array_logs=[b""],
        read=reading(),
        job=lambda _, number: next(job for job in reading().jobs if job.id == number),
    )
    red = Team("red", (*PEOPLE.values(), MATE), 1, leads=(PEOPLE["lead"],))
    users = [User(name, (), ("red",)) for name in red.users]
    teams = (red, Team("blue", (STRANGER,), 1))
    made.backend.clusters["lab"] = {"teams": teams, "users": (*users, User(STRANGER, (), ("blue",))), "mlflow": True}
    await made.apply()
    registry = FakeMlflow(files={"workspaces/w/1/r/artifacts/m/MLmodel": b""}, runs={"r": ({}, {})})
    registry.versions["iris", 1] = ("r", "mlflow-artifacts:/workspaces/w/1/r/artifacts/m")
    made.state.mlflow.http = registry.client()
    made.state.live.stopping.set()  # streams answer and end
    yield made
    await made.close()


@dataclass
class Things:
    """What stands in the {places} of an address and a body, when `role` asks for `thing`. Made once for all requests,
    but for what a request may end."""

    server: Server
    tokens: dict[str, str]
    pipelines: dict[str, str]
    sweeps: dict[str, str]
    services: dict[str, str]
    batches: dict[str, str]
    promotions: dict[str, str]
    operation: str

    async def everybody(self) -> None:
        """As they were: an earlier request may have changed or removed them."""
        store = self.server.store
        there = {one.name: one for one in await store.people.all()}
        for person in EVERYBODY:
            if person not in there or there[person].role != ROLE[person]:
                await store.people.set_role(person, ROLE[person])
            disabled = person in there and there[person].disabled
            if disabled:
                await store.people.enable(person, by="")
            if disabled or person not in there or person not in self.tokens:
                _, self.tokens[person] = await store.tokens.create(person)

    async def names(self, role: str, thing: str, path: str) -> dict[str, str]:
        person = PEOPLE.get(role, PEOPLE["admin"])
        owner = {"own": person, "team": MATE, "other": STRANGER}[thing]
        names = {
            "name": "lab",
            "node": "lab-1-1",
            "number": "1",
            "job_id": str(JOBS[owner]),
            "other_id": str(JOBS[owner]),
            "operation_id": self.operation,
            "operation": self.operation,
            "pipeline": self.pipelines[owner],
            "sweep": self.sweeps[owner],
            "service": self.services[owner],
            "batch": self.batches[owner],
            "promotion": self.promotions[owner],
            "schedule": schedule_id("lab", owner, "p"),
            "model": "iris",
            "alias": "staging",
            "digest": "0" * 64,
            "key": "k",
            "dataset": "wide",
            "environment": "tools",
            "secret": "wandb",
            "team": "blue" if owner == STRANGER else "red",
            "path": "ajax-api/2.0/mlflow/runs/search",
            "version": "1",
            "verb": "cancel",
            "user": owner,
            "person": owner,
            "resource_type": "User",
            "schema": USER_SCHEMA,
            "user_id": "0" * 16,
            "group_id": "0" * 16,
        }
        store = self.server.store
        if "{schedule}" in path:
            await put_schedule(store, owner)
        if "{token_id}" in path:
            names["token_id"] = (await store.tokens.create(owner))[0].id
        if "{service_key}" in path:
            row = await store.services.get("lab", self.services[owner])
            names["service_key"] = (await store.services.create_key("lab", row.proxy_name, "", owner))[0].id
        if "{session_id}" in path:
            cookie, _ = await store.sessions.create(owner)
            found = await store.sessions.all(owner, cookie)
            names["session_id"] = next(session.id for session in found if session.current)
        if "{notebook_id}" in path:
            names["notebook_id"] = made = secrets.token_hex(8)
            now = self.server.state.clock()
            await store.notebooks.save(NotebookRow(made, "lab", JOBS[owner], owner, owner, "/f", "secret", 60, now))
        return names


async def new_service(store: Store, team: str, name: str, person: str) -> ServiceRow:
    """Returns a new service of a person."""
    return await store.services.put("lab", team, name, person=person, user=person, document=SERVICE, least=1, most=1)


async def put_schedule(store: Store, person: str) -> None:
    """Stores a scheduled pipeline of a person."""
    kept = {"document": DOCUMENT, "bundle": "", "git": None}
    row = PipelineScheduleRow(schedule_id("lab", person, "p"), "lab", "p", person, person, 1.0, kept, next_at=1e12)
    await store.pipeline_schedules.put(row)


async def promotion_of(store: Store, team: str, person: str) -> str:
    """Returns a promotion of a person, which has ended."""
    kept = {"gates": {}, "mark": "m", "bundle": "", "git": None}
    row = await store.promotions.save("lab", team, "iris", 1, "former", person=person, user=person, document=kept)
    await store.promotions.change(row.id, of_state="pending", state="promoted", manifest="{}", ended_at=1.0)
    return row.id


def reading() -> SlurmReading:
    """Returns what Slurm says: one node and one job of each person."""
    jobs = (builders.job(JOBS[user], user=user, account="blue" if user == STRANGER else "red") for user in EVERYBODY)
    return SlurmReading((builders.node("lab-1-1", "IDLE"),), tuple(jobs))


@pytest.fixture
async def things(server: Server) -> Things:
    """Returns the objects that the routes concern, one of each kind for each person."""
    store, pipelines, sweeps, services, batches, promotions = server.store, {}, {}, {}, {}, {}
    kept: dict[str, Any] = {"document": DOCUMENT, "bundle": ""}
    sent: dict[str, Any] = {"kind": "submit", "request": {"script": "#!/bin/sh\n"}, "facts": {}, "audit": {}}
    operation = (await store.operations.recent("lab"))[0].id
    made = Things(server, {}, pipelines, sweeps, services, batches, promotions, operation)
    await made.everybody()
    await store.datasets.add(DatasetVersion("lab", "wide", 1, "0" * 64, 1, 1, "/data/wide", "ann", 1.0))
    await store.environments.add(ENVIRONMENT, "models==1\n")
    for person in EVERYBODY:
        row = await store.pipelines.save("lab", "p", person=person, user=person, workdir="/w", document=kept)
        pipelines[person] = row.id
        swept = await store.sweeps.save("lab", "s", person=person, user=person, document=SWEEP)
        sweeps[person] = swept.id
        batch = await store.batches.save("lab", "answers", person=person, user=person, document=BATCH_DOCUMENT)
        batches[person] = batch.id
        team = "blue" if person == STRANGER else "red"
        promotions[person] = await promotion_of(store, team, person)
        services[person] = (await new_service(store, team, f"s-{person}", person)).id
        await store.jobs.record("lab", JOBS[person], person=person, user=person, **sent)
    jobs = {job.user: job for job in reading().jobs}
    await store.trainings.save(
        training_row("lab", jobs[person], JobMetrics(metrics=[Metric("loss")])) for person in EVERYBODY
    )
    return made


def scope_of(method: str, path: str, token: str, content: bytes) -> dict[str, Any]:
    """Returns an ASGI scope as uvicorn makes it."""
    url, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1:7878"), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(content)).encode())]
    if method == "POST":
        headers.append((b"origin", server_fakes.URL.encode()))
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    return {
        "type": "http", "http_version": "1.1", "method": method, "path": url, "raw_path": url.encode(),
        "query_string": query.encode(), "root_path": "", "scheme": "http", "headers": headers,
        "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 7878), "state": {}, "asgi": {"version": "3.0"},
    }  # fmt: skip


async def ask(server: Server, method: str, path: str, token: str, body: Any = None) -> tuple[int, bytes]:
    """Returns (status, first bytes) as soon as the answer begins: a stream need not end."""
    content = b"" if body is None else json.dumps(body).encode()
    asked, answered = False, asyncio.Event()
    status, first = 0, b""

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, first
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message.get("body") or not message.get("more_body"):
            first = message.get("body", b"")
            answered.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(server.app(scope_of(method, path, token, content), receive, send))
    waiting = asyncio.ensure_future(answered.wait())
    await asyncio.wait({task, waiting}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    for one in (task, waiting):
        one.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    assert status, f"{method} {path} did not answer"
    return status, first


def filled(text: str, names: dict[str, str], key: str) -> str:
    """Returns the address with its {places} filled in."""
    try:
        return text.replace(":path}", "}").format_map(names)
    except KeyError as missing:
        raise AssertionError(f"{key}: say in Things.names what stands for {missing}") from None


def body_of(row: Row, names: dict[str, str]) -> Any:
    """The row's body with {user} filled in."""
    text = json.dumps(row.body)
    return json.loads(text.replace("{user}", names["user"]))
