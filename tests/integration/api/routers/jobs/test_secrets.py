"""Secrets of jobs: no answer has a value, owners are kept apart, heads get the values, logs do not show them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.access.job_secret import SecretDelivery
from headway.domain.teams import Team, User
from headway.errors import Unreachable
from headway.health.detection.agent_events import parse_event
from headway.jobs.logs.follow import log_piece
from headway.schemas.jobs import LogFoundOut, LogLineOut, LogPartOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.job_secret_delivery import AGAIN_S, JobSecretDelivery
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

SECRETS = "/api/v1/clusters/lab/job-secrets"
VALUE = "hf_0123456789abcdef"
TEAMS = (
    Team("red", ("ann", "lee", "mem", "tim"), 1, leads=("lee",)),
    Team("blue", ("bob", "lea"), 1, leads=("lea",)),
)
USERS = tuple(User(name, (), (team.name,)) for team in TEAMS for name in team.users)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    numbers = iter(range(41, 100))

    def submit(_: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        return SubmitOut(job_id=next(numbers), cluster="lab", user=user, workdir=request.chdir)

    made = await server_fakes.start(
        tmp_path, builders.Clock(), submit=submit, read=reading(), machines=(), install_job_secrets=()
    )
    for name in ("lab", "other"):
        made.backend.clusters[name] = {"teams": TEAMS, "users": USERS}
        await made.apply(name)
    yield made
    await made.close()


async def put(client: httpx.AsyncClient, name: str = "hf", value: str = VALUE, **fields: str) -> httpx.Response:
    return await client.put(f"{SECRETS}/{name}", json={"value": value, **fields})


def delivered(server: Server) -> dict[str, Any]:
    cluster, content = server.backend.named("install_job_secrets")[-1]
    return {"cluster": cluster.name, **json.loads(content)}


async def test_no_answer_page_log_or_record_has_the_value(server: Server, tmp_path: Path) -> None:
    mem, ann = await server.client("mem", "member"), await server.client("ann", "admin")
    texts = [(await put(mem)).text, (await mem.get(SECRETS)).text, (await ann.get(SECRETS)).text]
    run = await mem.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "secrets": ["hf"]})
    texts += [run.text, (await mem.get("/api/v1/clusters/lab/jobs/41/lineage")).text]
    texts += [(await ann.get("/api/v1/audit/export")).text, (await ann.get("/audit")).text]
    texts += [(await mem.request("DELETE", f"{SECRETS}/hf")).text, (await put(mem, value="tiny-1")).text]
    (request,) = [args[1] for args in server.backend.named("submit")]
    assert "#SBATCH --secret=hf" in request.script
    texts += [request.model_dump_json()]
    assert not [text for text in texts if VALUE in text or "tiny-1" in text]
    lines = {line.action: line.detail for line in await server.store.audit.search()}
    assert lines["run"]["secrets"] == ["hf"]
    assert lines["secret.set"] == {"secret": "hf", "owner": "mem"} == lines["secret.remove"]


async def test_database_has_only_encrypted_values(server: Server, tmp_path: Path) -> None:
    await put(await server.client("mem", "member"))
    with sqlite3.connect(next(tmp_path.rglob("headway.db"))) as db:
        assert VALUE not in "\n".join(db.iterdump())


async def test_heads_get_the_secrets_of_their_cluster_only(server: Server) -> None:
    mem, lee = await server.client("mem", "member"), await server.client("lee", "lead")
    await put(mem)
    await put(lee, team="red", value="team-value")
    await mem.put("/api/v1/clusters/other/job-secrets/hf", json={"value": "for the other"})
    assert delivered(server) | {"revision": 0} == {
        "cluster": "other", "revision": 0, "users": {"mem": {"hf": "for the other"}}, "teams": {},
        "members": {},
    }  # fmt: skip
    before = [json.loads(content) for _, content in server.backend.named("install_job_secrets")]
    assert before[1]["users"] == {"mem": {"hf": VALUE}}
    assert before[1]["teams"] == {"red": {"hf": "team-value"}}
    assert before[1]["revision"] > before[0]["revision"]
    await mem.request("DELETE", f"{SECRETS}/hf")
    assert (delivered(server)["users"], delivered(server)["revision"] > before[1]["revision"]) == ({}, True)


async def test_secrets_of_other_people_and_teams_are_refused(server: Server) -> None:
    mem, bob = await server.client("mem", "member"), await server.client("bob", "member")
    lee, lea, ann = await server.client("lee", "lead"), await server.client("lea", "lead"), await server.client()
    await put(mem)
    await put(lee, "team", team="red")
    assert [(await put(who, team="red")).status_code for who in (mem, bob, lea)] == [403] * 3
    assert [(await put(who, user="mem")).status_code for who in (bob, lee)] == [403] * 2
    assert (await bob.request("DELETE", f"{SECRETS}/hf")).status_code == 404
    assert (await bob.request("DELETE", f"{SECRETS}/hf?user=mem")).status_code == 403
    assert (await mem.request("DELETE", f"{SECRETS}/team?team=red")).status_code == 403
    assert (await bob.get(SECRETS)).json() == []
    assert [one["name"] for one in (await mem.get(SECRETS)).json()] == ["hf", "team"]
    assert [one["name"] for one in (await lee.get(SECRETS)).json()] == ["team"]
    assert [one["user"] for one in (await ann.get(SECRETS)).json()] == ["mem", ""]
    assert (await put(ann, user="mem")).status_code == 200
    assert (await ann.request("DELETE", f"{SECRETS}/team?team=red")).status_code == 200
    assert (await put(ann, team="green")).status_code == 404


async def test_token_needs_the_scope_to_run_jobs_and_its_cluster(server: Server) -> None:
    await server.store.people.set_role("mem", "member")
    for scopes, cluster, status in ((("read",), "", 403), (("submit",), "", 200), (("submit",), "other", 403)):
        _, token = await server.store.tokens.create("mem", scopes=scopes, cluster=cluster)
        client = server.anonymous(authorization=f"Bearer {token}")
        assert (await put(client)).status_code == status
        assert (await client.get(SECRETS)).status_code == status


async def test_job_that_asks_for_a_missing_secret_is_refused(server: Server) -> None:
    mem, bob = await server.client("mem", "member"), await server.client("bob", "member")
    lee = await server.client("lee", "lead")
    await put(lee, "of-red", team="red")
    await put(bob, "of-bob")
    script = {"script": "#!/bin/bash\n#SBATCH --secret=of-red\ntrue\n"}
    assert (await mem.post("/api/v1/clusters/lab/jobs", json=script)).status_code == 201
    for who, name in ((mem, "of-bob"), (bob, "of-red")):
        answer = await who.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "secrets": [name]})
        assert answer.status_code == 400
        assert "have no secret of this name on lab" in answer.text
        check = await who.post("/api/v1/clusters/lab/jobs/check", json={"run": {"argv": ["true"], "secrets": [name]}})
        assert [fault["path"] for fault in check.json()["faults"]] == ["secrets"]
    assert len(server.backend.named("submit")) == 1


async def test_pipeline_whose_step_asks_for_a_missing_secret_is_refused(server: Server) -> None:
    mem, pipelines = await server.client("mem", "member"), "/api/v1/clusters/lab/pipelines"
    await put(mem)
    steps = {"a": {"run": "true", "secrets": ["hf"]}, "b": {"run": "true", "needs": ["a"], "secrets": ["gone"]}}
    refused = await mem.post(pipelines, json={"document": {"name": "chain", "steps": steps}})
    assert refused.status_code == 400, refused.text
    assert "step b: --secret gone: mem and team red have no secret of this name on lab" in refused.json()["detail"]
    assert server.backend.named("submit") == []
    steps["b"]["secrets"] = ["hf"]
    server.backend.answers |= {"job": builders.job(42, state="FAILED"), "cancel": None}
    assert (await mem.post(pipelines, json={"document": {"name": "chain", "steps": steps}})).status_code == 201
    assert (await mem.request("DELETE", f"{SECRETS}/hf")).status_code == 200
    retried = await mem.post(f"{pipelines}/chain/retry", json={"steps": ["b"]})
    assert "step b: --secret hf" in retried.json()["detail"], "a retry asks for them again"
    assert len(server.backend.named("submit")) == 2


async def test_heads_follow_the_members_of_teams(server: Server) -> None:
    lee, mem = await server.client("lee", "lead"), await server.client("mem", "member")
    await put(lee, "team", team="red")
    await put(mem)
    assert delivered(server)["members"] == {"red": ["ann", "lee", "mem", "tim"]}
    worker, before = JobSecretDelivery(server.state), len(server.backend.named("install_job_secrets"))
    await worker.deliver_due(0.0)
    assert len(server.backend.named("install_job_secrets")) == before, "nothing has changed"
    left = Team("red", ("ann", "lee"), 1, leads=("lee",))
    for teams, members in (((left,), {"red": ["ann", "lee"]}), ((), {})):
        users = tuple(User(name, (), (team.name,)) for team in teams for name in team.users)
        server.backend.clusters["lab"] = {"teams": teams, "users": users}
        server.state.clusters.forget("lab")
        await worker.deliver_due(0.0)
        assert delivered(server)["members"] == members
        assert [*delivered(server)["teams"]] == [*members]
        assert delivered(server)["users"] == {}, "mem is no user of the cluster any more"


async def test_next_holder_of_a_linux_user_gets_no_secret(server: Server) -> None:
    mem, ann = await server.client("mem", "member"), await server.client("ann", "admin")
    await put(mem)
    assert (await ann.put("/api/v1/people/mem", json={"role": "lead"})).status_code == 200
    assert len((await mem.get(SECRETS)).json()) == 1, "another role is no other Linux user"
    assert (await ann.put("/api/v1/people/mem", json={"role": "member", "user": "member"})).status_code == 200
    assert (await ann.put("/api/v1/people/new", json={"role": "member", "user": "mem"})).status_code == 200
    assert (await (await server.client("new", "member")).get(SECRETS)).json() == []
    await JobSecretDelivery(server.state).deliver_due(0.0)
    assert delivered(server)["users"] == {}


async def test_head_that_was_away_gets_the_change_later(server: Server) -> None:
    mem = await server.client("mem", "member")
    server.backend.answers["install_job_secrets"] = ("lab-head",)
    assert (await put(mem)).json()["undelivered"] == ["lab-head"]
    server.backend.answers["install_job_secrets"] = Unreachable("the provider does not answer")
    assert (await mem.request("DELETE", f"{SECRETS}/hf")).json()["undelivered"] == ["lab-head"]
    worker, before = JobSecretDelivery(server.state), len(server.backend.named("install_job_secrets"))
    await worker.deliver_due(0.0)
    server.backend.answers["install_job_secrets"] = ()
    await worker.deliver_due(1.0)
    assert len(server.backend.named("install_job_secrets")) == before + 1
    await worker.deliver_due(AGAIN_S)
    await worker.deliver_due(2 * AGAIN_S)
    assert len(server.backend.named("install_job_secrets")) == before + 2
    assert delivered(server)["users"] == {}


async def test_job_that_got_secrets_is_audited_once(server: Server) -> None:
    line = b'{"secrets": {"id": "a1", "at": 1000.5, "job": 7, "user": "mem", "names": ["hf"]}}'
    found = parse_event(line)
    assert isinstance(found, SecretDelivery)
    for _ in range(2):  # a head reports it again after an outage
        await server.store.job_secrets.record_delivery("lab", found)
    await server.store.job_secrets.record_delivery("other", found)
    lines = [one for one in await server.store.audit.search() if one.action == "secret.deliver"]
    assert sorted(one.target for one in lines) == ["lab", "other"]
    assert lines[0].detail == {"job": 7, "user": "mem", "secrets": ["hf"]}


async def test_removed_person_leaves_no_secret(server: Server) -> None:
    mem, ann = await server.client("mem", "member"), await server.client("ann", "admin")
    await put(mem)
    assert (await ann.delete("/api/v1/people/mem")).status_code < 300
    assert (await ann.get(SECRETS)).json() == []
    await JobSecretDelivery(server.state).deliver_due(0.0)
    assert delivered(server)["users"] == {}


async def test_logs_show_no_value(server: Server) -> None:
    mem, lee = await server.client("mem", "member"), await server.client("lee", "lead")
    await put(mem)
    await put(lee, "team", team="red", value="red-team-value")
    log = f"a {VALUE}\nb red-team-value\n".encode()
    masked = f"a {'*' * len(VALUE)}\nb {'*' * 14}\n"
    jobs = "/api/v1/clusters/lab/jobs"
    server.backend.answers |= {
        "read": reading(builders.job(7, user="mem", account="red")),
        "job": builders.job(7, user="mem", account="red"),
        "follow_log": [log_piece(log[:9], 0), log_piece(log[9:], 9)],
        "log_part": LogPartOut(text=log.decode(), start=0, end=len(log), size=len(log)),
        "search_log": LogFoundOut(found=[LogLineOut(offset=0, line=1, text=f"a {VALUE}")]),
    }
    for reader in (mem, lee):
        assert (await reader.get(f"{jobs}/7/log")).text == masked
        assert (await reader.get(f"{jobs}/7/log/part")).json()["text"] == masked
        assert (await reader.get(f"{jobs}/7/log/search?q=a")).json()["found"][0]["text"] == masked.splitlines()[0]
        assert (await reader.get(f"{jobs}/7/log/search?q=hf_0")).json()["found"] == []
    await put(mem, value="the next value")
    await mem.request("DELETE", f"{SECRETS}/hf")
    assert (await mem.get(f"{jobs}/7/log")).text == masked, "a removed value stays masked"
    server.backend.answers["follow_log"] = lambda *args: [log_piece(log[args[4] :], args[4])]
    assert (await mem.get(f"{jobs}/7/log?start=30")).text == masked[30:]
