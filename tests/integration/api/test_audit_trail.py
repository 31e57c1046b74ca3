"""Each write of the API and of the pages is in the audit trail, whether it succeeded, failed or was refused."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from headway.backup.archive import SUFFIX, Header, Writer, key_of, new_salt
from headway.billing import periods
from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.access.role import Role
from headway.domain.dataset import DatasetVersion
from headway.domain.incident import FaultAction, IncidentState
from headway.errors import HeadwayError, Refused, Unreachable
from headway.schemas.jobs import JobStacksOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.cluster_backend import SlurmReading
from headway.services.server_settings import Oidc
from headway.store import AuditAsk, TrialRow
from tests.support.api.access_table import SCIM_ROUTES, TABLE
from tests.support.api.api_routes import (
    BATCH_DOCUMENT,
    ENVIRONMENT,
    JOBS,
    PEOPLE,
    SWEEP,
    Things,
    ask,
    body_of,
    filled,
    new_service,
    routes,
    server,
    things,
)
from tests.support.billing.published_catalogs import catalog, files_of, published
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

__all__ = ["server", "things"]  # fixtures
ADMIN, VIEWER = PEOPLE["admin"], PEOPLE["viewer"]
# What changes nothing: it looks, checks or makes a draft. And input belongs to a command, which has its line.
NOTHING_CHANGED = {
    "POST api/plan", "POST api/clusters/{name}/scale/plan", "POST api/clusters/{name}/roll/plan",
    "POST api/clusters/{name}/jobs/check", "POST api/backups/verify",
    "POST api/clusters/{name}/estimate", "POST api/size",
    "POST api/clusters/{name}/commands/{key}/input", "POST api/clusters/{name}/terminals/{key}/input",
    "PUT api/clusters/{name}/terminals/{key}/size", "POST api/clusters/{name}/mlflow/{team}/{path:path}",
    "POST /new", "POST /new/check", "POST /clusters/{name}/scale", "POST /clusters/{name}/schedule",
    "POST /clusters/{name}/submit/check",
}  # fmt: skip
SIGNING = {
    "POST /signin",
    "POST /signin/link",
    "POST /signin/oidc/logout",
    "POST /signout",
}  # by people who have not signed in yet, or no longer: other modules test them
FORMS: dict[str, dict[str, str]] = {
    "POST /new/apply": {"text": "name: lab\nplan: h100-8\nnodes: 4\n", "confirmed": "1"},
    "POST /clusters/{name}/scale/apply": {"nodes-main": "2", "confirmed": "1"},
    "POST /clusters/{name}/schedule/apply": {"start": "2099-01-01T10:00", "hours": "4", "confirmed": "1"},
    "POST /tokens": {"label": "x"},
    "POST /people": {"person": "nora"},
    "POST /people/{person}": {"role": "member", "user": "{user}"},
    "POST /clusters/{name}/nodes/{node}/drain": {"reason": "disk swap"},
    "POST /clusters/{name}/submit": {"script": "#!/bin/sh\nhostname\n"},
    "POST /clusters/{name}/notebooks": {"gpus": "1"},
    "POST /clusters/{name}/jobs/{job_id}/resume": {"step": "4000"},
    "POST /clusters/{name}/pipelines/{pipeline}/retry": {"step": "one"},
}
UTC = periods.time_zone("UTC")
NOW = 1_790_000_000.0
LAST_MONTH = periods.previous_month(periods.month_of(NOW, UTC), UTC)
BODIES: dict[str, Any] = {
    "POST api/clusters/{name}/pipelines/{pipeline}/retry": {"steps": ["one"]},
    "POST api/clusters/{name}/invoice/close": {"period": LAST_MONTH.name},
}
WAITING = {"hold", "release"}
_QUEUED = (  # these don't ask the cluster
    "/down", "/apply", "/scale", "/scale/plan", "/scale/apply", "/schedule/apply", "/link", "/backup", "/restore", "/rotate",
    "/datasets", "/environments", "/verify", "/remove", "/fabric-test", "/whatif",
    "/roll", "/roll/plan",
)  # fmt: skip


@pytest.fixture
def prices() -> Iterator[str]:
    """The address of a server that publishes one price."""
    row = "p5.48xlarge,us-east-1,50.5,192,2048.0,8,H100,80.0,False,,nvidia,,x86,{}"
    with published(files_of("aws", catalog(row))) as url:
        yield url


@pytest.fixture
def world(
    server: Server,
    things: Things,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    prices: str,
) -> Things:
    """Where every action works."""
    kept = {"path": str(_backup(tmp_path_factory.mktemp("backups"))), "passphrase": "long enough", "confirmed": True}
    monkeypatch.setitem(BODIES, "POST api/clusters/{name}/restore", kept)
    work = server.backend
    server.state.settings = replace(
        server.state.settings, oidc=Oidc("https://id.example.org", "headway"), offers_url=prices
    )
    again = [0]

    def submit(*_: Any) -> Any:
        again[0] += 1
        return SubmitOut(job_id=1000 + again[0], cluster="lab", user="x", workdir="/w")

    async def converse(*_: Any) -> AsyncIterator[tuple[str, bytes]]:
        yield "out", b"x"

    async def bring_back(_: Any, number: int, person: str, __: bool) -> Any:
        made = await server.store.incidents.get(number)
        return await server.store.incidents.add_step(made, IncidentState.RETURNED, "works", actor=person)

    async def goes_on(*_: Any) -> Any:
        return _text()

    work.answers |= {
        "submit": submit, "run_interactive": converse, "run_on_terminal": converse,
        "return_incident_node": bring_back, "drain_node": "drained",
        "return_node": "returned", "reboot_node": goes_on, "test_node": (), "inject_fault": "done", "measure_volumes": (),
        "rank_stacks": JobStacksOut(),
        "usage_runs": (), "node_events": (), "restart_losses": {}, "checkpoint_stats": {}, "query_metrics": (),
    }  # fmt: skip
    return things


def _backup(folder: Path) -> Path:
    header = Header("lab", 1.0, "1", "24.11", new_salt())
    writer = Writer(folder / f"lab{SUFFIX}", header, key_of("long enough", header.salt))
    writer.begin("state")
    writer.end()
    writer.finish()
    writer.name()
    return writer.path


async def _text() -> str:
    return ""


async def write(world: Things, key: str, method: str, path: str, role: str, thing: str = "own") -> int:
    """The status of one write, everything in place for it to work."""
    made = world.server
    names = await world.names(role, thing, path)
    await _ready(made, key, names)
    token = world.tokens[PEOPLE[role]]
    if SCIM_ROUTES in key:
        _, token = await made.store.tokens.create(PEOPLE[role], scopes=["scim"])
    if " api/" in key or SCIM_ROUTES in key:
        status, _ = await ask(
            made, method, filled(path, names, key), token, BODIES.get(key) or body_of(TABLE[key], names)
        )
        return status
    form = {name: text.format_map(names) if "{" in text else text for name, text in FORMS.get(key, {}).items()}
    headers = {"authorization": f"Bearer {token}", "content-type": "application/x-www-form-urlencoded"}
    client = made.anonymous(origin=server_fakes.URL)
    answer = await client.request(method, filled(path, names, key), content=urlencode(form), headers=headers)
    return answer.status_code


async def _ready(made: Server, key: str, names: dict[str, str]) -> None:
    """Jobs in the state that the action is for, a node with a fault or without, no action of a node under way."""
    verb = key.rpartition("/")[2]
    state = "PENDING" if verb in WAITING else "FAILED" if verb in ("retry", "rerun", "resume") else "RUNNING"
    jobs = tuple(builders.job(number, state, user=user) for user, number in JOBS.items())
    made.backend.answers["read"] = SlurmReading((builders.node("lab-1-1", "IDLE"),), jobs)
    made.backend.answers["array_states"] = {} if verb == "resume" else {"1": "FAILED"}  # only tasks can be retried
    known = {job.id: job for job in jobs}
    made.backend.answers["job"] = lambda _, number: known.get(number) or builders.job(number, "FAILED")
    made.state.live.forget_cluster("lab")
    made.state.node_actions.clear()
    for operation in await made.store.operations.recent("lab"):
        if not operation.finished:
            await made.work_off()
            break
    if "invoice" in key:
        made.state.clock = lambda: NOW
        await made.store.machine_lifetimes.record("lab", [("lab-1-1", "main")], [], [], LAST_MONTH.start)
        await made.store.machine_lifetimes.end_all("lab", LAST_MONTH.end)
    if "{dataset}" in key:
        number = await made.store.datasets.next_number("lab", "wide")
        await made.store.datasets.add(DatasetVersion("lab", "wide", number, "0" * 64, 1, 1, "/data/wide", "ann", 1.0))
        names["version"] = str(number)
    if "{environment}" in key:
        number = await made.store.environments.next_number("lab", "tools")
        await made.store.environments.add(replace(ENVIRONMENT, number=number), "models==1\n")
        names["version"] = str(number)
    if key.endswith("{sweep}/stop"):
        new = await made.store.sweeps.save("lab", "s", person=ADMIN, user=ADMIN, document=SWEEP)
        names["sweep"] = new.id
    if "{batch}/" in key:
        batch = await made.store.batches.save("lab", "answers", person=ADMIN, user=ADMIN, document=BATCH_DOCUMENT)
        names["batch"] = batch.id
        if key.endswith("/retry"):
            await made.store.batches.change(batch.id, of_state="submitting", state="failed", ended_at=1.0)
    if "{service}/" in key:
        new_row = await new_service(made.store, "red", f"s-{secrets.token_hex(4)}", ADMIN)
        names["service"] = new_row.id
        if "{service_key}" in key:
            names["service_key"] = (await made.store.services.create_key("lab", new_row.proxy_name, "", ADMIN))[0].id
    if key.endswith("{sweep}/best"):
        trial = TrialRow(names["sweep"], "lab", 1, {"a": 1}, 1.0, state="done", ended_at=2.0, value=0.5)
        await made.store.sweeps.add_trials([trial])
    if "{secret}" in key:
        mine = SecretOwner(OwnerKind.USER, ADMIN)
        await made.store.job_secrets.put("lab", mine, names["secret"], "", ADMIN, 9)
    if "{user_id}" in key:
        name = secrets.token_hex(4)
        await made.store.people.add_from_provider(name, name, role=Role.VIEWER, user="")
        names["user_id"] = await made.store.scim.add_user(name, name, name, {})
    if "{group_id}" in key:
        names["group_id"] = await made.store.scim.save_group("", secrets.token_hex(4), "", ())
    if "incidents" in key:
        found = await made.store.incidents.open("lab", "lab-1-2", "XID 79", FaultAction.RMA, 5.0, {})
        names["number"] = str(found.number)


def writes(made: Server) -> list[tuple[str, str, str]]:
    """Those that bring the cluster down last."""
    found = [route for route in sorted(routes(made)) if route[1] != "GET" and route[0] not in NOTHING_CHANGED | SIGNING]
    return sorted(found, key=lambda one: (one[0].endswith("/down"), one[0]))


async def test_every_successful_write_is_audited(world: Things) -> None:
    made, wrong = world.server, []
    for key, method, path in writes(world.server):
        before = (await made.store.audit.search(limit=1))[0].number
        status = await write(world, key, method, path, "admin")
        await world.everybody()
        lines = [
            row for row in await made.store.audit.search(AuditAsk(person=ADMIN), after=before) if row.result == "ok"
        ]
        if status >= 400:
            wrong.append(f"{key} answered {status}: say here how it is done")
        elif not lines:
            wrong.append(f"{key} answered {status} and left no line")
        elif not all(line.address == "127.0.0.1" and line.target and line.action for line in lines):
            wrong.append(f"{key}: {lines}")
    assert not wrong, "\n" + "\n".join(wrong)


async def test_every_refused_write_is_audited(world: Things) -> None:
    made, wrong = world.server, []
    for key, method, path in writes(world.server):
        if "viewer" in TABLE[key].own:
            continue
        before = (await made.store.audit.search(limit=1))[0].number
        status = await write(world, key, method, path, "viewer")
        lines = await made.store.audit.search(AuditAsk(person=VIEWER, result="refused"), after=before)
        if status != 403 or len(lines) != 1 or lines[0].detail["path"] == "":
            wrong.append(f"{key} answered {status}: {lines}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("why", [Refused("no"), Unreachable("gone")], ids=["refused", "unreachable"])
async def test_every_write_that_the_cluster_refuses_is_audited(world: Things, why: HeadwayError) -> None:
    made, wrong = world.server, []
    for key, method, path in writes(world.server):
        if "/clusters/{name}" not in f"/{key.partition(' ')[2]}" or key.endswith(_QUEUED):
            continue
        for call in (
            "submit", "cancel", "control", "store_bundle", "run_command", "return_incident_node", "drain_node", "return_node",
            "reboot_node", "inject_fault", "measure_volumes", "usage_runs", "rank_stacks",
        ):  # fmt: skip
            made.backend.answers[call] = why
        if key.endswith(
            (
                "/submit",
                "/commands",
                "/terminals",
                "/nodes/{node}/test",
                "/notebooks/{notebook_id}",
                "{notebook_id}/stop",
                "{secret}",
                "/services",
                "{service}/stop",
                "{service}/scale",
                "{service}/keys",
                "{service_key}",
                "/batches",
                "{batch}/stop",
                "{batch}/retry",
                "/approvals",
                "/promotions",
                "{alias}",
                "/pipeline-schedules",
                "{schedule}",
                "/sweeps",
                "{sweep}/stop",
                "{sweep}/trials",
                "/trainings/{job_id}",
            )
        ):
            continue  # only checked by then, begun or stored in any case, or ended by itself
        before = (await made.store.audit.search(limit=1))[0].number
        status = await write(world, key, method, path, "admin")
        lines = await made.store.audit.search(AuditAsk(person=ADMIN, result="failed"), after=before)
        if len(lines) != 1:
            wrong.append(f"{key} answered {status}: {lines}")
    assert not wrong, "\n" + "\n".join(wrong)


async def test_first_admin_creation_is_audited(tmp_path: Path) -> None:
    from headway.server.local_tokens import first_admin

    store = await builders.store(tmp_path)
    await first_admin(store, tmp_path)
    lines = [(row.action, row.detail.get("by")) for row in await store.audit.search()]
    assert lines == [("token.create", "first start"), ("person.add", "first start")]
    await store.close()
