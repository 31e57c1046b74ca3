"""Each right is granted only to the roles that have it, and a browser signs in and out correctly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from headway.catalog.providers import SSH
from headway.domain.cluster import Host
from headway.domain.storage.folders import Dataset
from headway.domain.teams import Team, User
from headway.schemas.base import PROBLEM_JSON, Problem
from headway.schemas.job_list import JobsPage
from headway.schemas.jobs import JobStacksOut, RankStackOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.access.concurrency_limits import MAX_COMMANDS_PER_PERSON
from tests.support.clusters import builders
from tests.support.servers.server_fakes import URL, Server, changes, document, reading


def kind(answer: httpx.Response) -> tuple[int, str]:
    problem = Problem.model_validate(answer.json())
    assert (answer.headers["content-type"], problem.status) == (PROBLEM_JSON, answer.status_code)
    return problem.status, problem.kind


async def test_every_endpoint_requires_sign_in(server: Server) -> None:
    client = server.anonymous()
    open_paths = {"/api/v1/openapi.json", "/api/v1/docs", "/api/v1/docs.css"}
    checked = 0
    for path, methods in server.app.openapi()["paths"].items():
        for method in methods:
            if path in open_paths:
                continue
            url = path.replace("{job_id}", "1").replace("{name}", "lab")
            body: dict[str, Any] = {"json": {}} if method == "post" else {}
            answer = await client.request(method, url, **body)
            assert kind(answer) == (401, "not_signed_in"), (method, path)
            checked += 1
    assert checked > 20


async def test_refuses_unknown_and_expired_tokens(server: Server) -> None:
    assert kind(await server.anonymous(authorization="Bearer hw_x").get("/api/v1/me")) == (401, "not_signed_in")
    assert kind(await server.anonymous(authorization="Basic abc").get("/api/v1/me")) == (401, "not_signed_in")
    admin = await server.client()
    token = (await admin.post("/api/v1/tokens", json={"days": 1})).json()["token"]
    client = server.anonymous(authorization=f"Bearer {token}")
    assert (await client.get("/api/v1/me")).json()["person"] == "ann"
    server.state.clock.now += 86400  # type: ignore[attr-defined]
    assert (await client.get("/api/v1/me")).status_code == 401


@pytest.mark.parametrize(("role", "allowed"), [("viewer", 0), ("member", 1), ("admin", 2)])
async def test_endpoints_require_the_documented_role(server: Server, role: str, allowed: int) -> None:
    await server.apply()
    server.backend.answers |= {
        "plan": changes(),
        "submit": SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve"),
        "take_down": (),
    }
    client = await server.client("eve", role)
    assert (await client.get("/api/v1/clusters")).status_code == 200
    member = [
        await client.post("/api/v1/plan", json=document().model_dump()),
        await client.post("/api/v1/clusters/lab/jobs", json={"script": "#!/bin/sh\n"}),
    ]
    admin = [
        await client.post("/api/v1/clusters/lab/apply", json={"document": document().model_dump()}),
        await client.post("/api/v1/clusters/lab/down", json={}),
    ]
    for answers, needed in ((member, 1), (admin, 2)):
        for answer in answers:
            if allowed >= needed:
                assert answer.is_success, answer.text
            else:
                assert kind(answer) == (403, "not_allowed")


async def test_members_submit_and_exec_only_as_their_own_user(server: Server) -> None:
    await server.apply()
    out = SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve")
    server.backend.answers |= {"submit": out, "run_command": ExecOut(code=3, stdout_b64="AAE=")}
    eve, admin = await server.client("eve", "member"), await server.client("ann", "admin")
    assert kind(await eve.post("/api/v1/clusters/lab/jobs", json={"user": "bob"})) == (403, "not_allowed")
    for user in ("bob", "root"):
        answer = await eve.post("/api/v1/clusters/lab/exec", json={"argv": ["id"], "user": user})
        assert kind(answer) == (403, "not_allowed")
    assert (await eve.post("/api/v1/clusters/lab/jobs", json={})).status_code == 201
    answer = await eve.post("/api/v1/clusters/lab/exec", json={"argv": ["id"], "user": "eve"})
    assert answer.json() == {"code": 3, "stdout_b64": "AAE=", "stderr_b64": ""}
    assert (await admin.post("/api/v1/clusters/lab/jobs", json={"user": "bob"})).status_code == 201
    assert (await admin.post("/api/v1/clusters/lab/exec", json={"argv": ["id"]})).status_code == 200
    assert [call[-1] for call in server.backend.named("submit")] == ["eve", "bob"]
    assert [call[-1] for call in server.backend.named("run_command")] == ["eve", "root"]
    bad = await admin.post("/api/v1/clusters/lab/jobs", json={"user": "bob; rm -rf /"})
    assert kind(bad) == (400, "refused")


async def test_members_cannot_cancel_jobs_or_read_logs_of_others(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "read": reading(builders.job(7, user="bob")),
        "machines": (),
        "cancel": None,
        "follow_log": [b"loss 1.0\n", b"\xff"],
    }
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    assert kind(await eve.delete("/api/v1/clusters/lab/jobs/7")) == (403, "not_allowed")
    assert kind(await eve.get("/api/v1/clusters/lab/jobs/7/log")) == (403, "not_allowed")
    assert (await eve.get("/api/v1/clusters/lab/jobs/7")).status_code == 200
    assert (await bob.get("/api/v1/clusters/lab/jobs/7/log?follow=1")).content == b"loss 1.0\n\xff"
    assert (await bob.delete("/api/v1/clusters/lab/jobs/7")).status_code == 204
    assert (await (await server.client()).delete("/api/v1/clusters/lab/jobs/7")).status_code == 204
    assert [call[1:] for call in server.backend.named("cancel")] == [("7", "bob", False), ("7", "ann", True)]


async def test_cancelling_an_ended_job_answers_409(server: Server) -> None:
    await server.apply()
    ended = builders.job(7, state="COMPLETED")
    server.backend.answers |= {"read": reading(ended), "machines": (), "cancel": None}
    ann = await server.client()
    answer = await ann.delete("/api/v1/clusters/lab/jobs/7")
    assert kind(answer) == (409, "conflict")
    assert "COMPLETED" in answer.json()["detail"]
    assert server.backend.named("cancel") == []


async def test_cancelling_an_array_id_works_while_some_tasks_still_run(server: Server) -> None:
    await server.apply()
    jobs = (builders.job(7, state="COMPLETED"), replace(builders.job(8, state="RUNNING"), array_job_id=7))
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "cancel": None}
    assert (await (await server.client()).delete("/api/v1/clusters/lab/jobs/7")).status_code == 204


async def test_cancel_and_control_address_one_array_task_or_the_whole_array(server: Server) -> None:
    """The last task of an array has the array's own number: told just that, Slurm ends all the others too."""
    await server.apply()
    tasks = [replace(builders.job(number), array_job_id=7, array_task=str(task)) for number, task in ((8, 0), (7, 1))]
    rest = replace(builders.job(9, "PENDING"), array_job_id=9, array_task="2-5%2")
    server.backend.answers |= {"read": reading(*tasks, rest), "machines": (), "cancel": None, "control": None}
    ann = await server.client()
    for path in ("7?task=1", "8?task=0", "9?task=4", "7"):
        assert (await ann.delete(f"/api/v1/clusters/lab/jobs/{path}")).status_code == 204
    assert [call[1] for call in server.backend.named("cancel")] == ["7_1", "7_0", "9_4", "7"]
    assert kind(await ann.delete("/api/v1/clusters/lab/jobs/9?task=6")) == (404, "not_found")
    assert (await ann.post("/api/v1/clusters/lab/jobs/7/requeue?task=1")).status_code == 204
    assert (await ann.post("/api/v1/clusters/lab/jobs/9/hold?task=2")).status_code == 204
    assert kind(await ann.post("/api/v1/clusters/lab/jobs/9/requeue?task=2")) == (409, "conflict")
    assert [call[1:3] for call in server.backend.named("control")] == [("7_1", "requeue"), ("9_2", "hold")]


async def test_stacks_are_read_of_running_jobs_only_and_by_people_who_may_act_on_them(server: Server) -> None:
    await server.apply()
    jobs = builders.job(7), builders.job(8, "PENDING"), builders.job(9, user="bob")
    found = JobStacksOut(stacks=[RankStackOut(rank=0, node="lab-1-1", frames=["f (t.py:1)"])], verdict="")
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "rank_stacks": found}
    alice = await server.client("alice", "member")
    answer = await alice.post("/api/v1/clusters/lab/jobs/7/stacks")
    assert answer.json()["stacks"] == [{"rank": 0, "node": "lab-1-1", "frames": ["f (t.py:1)"]}]
    assert kind(await alice.post("/api/v1/clusters/lab/jobs/8/stacks")) == (409, "conflict")
    assert kind(await alice.post("/api/v1/clusters/lab/jobs/9/stacks")) == (403, "not_allowed")


async def test_user_removed_from_cluster_cannot_read_logs_or_cancel(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "read": reading(builders.job(7, user="bob")),
        "machines": (),
        "cancel": None,
        "follow_log": [b"loss 1.0\n"],
    }
    bob = await server.client("bob", "member")
    await server.store.linux_uids.add_to_cluster("lab", ["alice", "bob"])  # once there; the cluster has only alice now
    assert kind(await bob.get("/api/v1/clusters/lab/jobs/7/log")) == (403, "not_allowed")
    assert kind(await bob.delete("/api/v1/clusters/lab/jobs/7")) == (403, "not_allowed")
    assert (await (await server.client()).get("/api/v1/clusters/lab/jobs/7/log")).status_code == 200


async def test_job_list_filters_by_user_and_state(server: Server) -> None:
    await server.apply()
    jobs = (
        builders.job(1, "COMPLETED", user="eve"),
        builders.job(2, "RUNNING", user="eve"),
        builders.job(3, "PENDING", user="bob"),
    )
    old = (builders.job(0, "FAILED", user="eve"), builders.job(2, "RUNNING", user="wrong"))
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "history": old}
    client = await server.client()

    async def ids(query: str) -> list[int]:
        answer = await client.get(f"/api/v1/clusters/lab/jobs{query}")
        return sorted(job.id for job in JobsPage.model_validate(answer.json()).jobs)

    assert await ids("") == [2, 3]
    assert await ids("?all=1") == [0, 1, 2, 3]
    assert await ids("?user=eve") == [2]
    assert await ids("?all=1&user=eve") == [0, 1, 2]
    assert await ids("?state=fail") == [0]


async def test_sign_in_link_works_once_and_sets_a_strict_cookie(server: Server) -> None:
    client = await server.client()
    link = (await client.post("/api/v1/signin-links")).json()["url"]
    assert link.startswith(f"{URL}/signin?code=")
    browser = server.anonymous()
    answer = await browser.get(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert (await browser.get("/api/v1/me")).json()["person"] == "ann"
    assert (await server.anonymous().get(link)).status_code == 401
    assert (await server.anonymous().get("/signin?code=guess")).status_code == 401
    for elsewhere in ({}, {"origin": "http://evil.example"}):
        assert (await browser.post("/signout", headers=elsewhere)).status_code == 403
    kept = dict(browser.cookies)
    out = await browser.post("/signout", headers={"origin": URL})
    assert (out.status_code, out.headers["clear-site-data"]) == (303, '"cache"')
    assert (await browser.get("/api/v1/me")).status_code == 401
    again = await server.anonymous().post("/signout", headers={"origin": URL}, cookies=kept)
    assert (again.status_code, again.headers["location"]) == (303, "/")


async def test_cookie_writes_require_same_origin(server: Server) -> None:
    link = (await (await server.client()).post("/api/v1/signin-links")).json()["url"]
    browser = server.anonymous()
    await browser.get(link)
    for origin in (None, "null", "http://evil.example", "http://127.0.0.1:9999", "http://127.0.0.1:7878.evil.example"):
        headers = {} if origin is None else {"origin": origin}
        assert kind(await browser.post("/api/v1/tokens", json={}, headers=headers)) == (403, "not_allowed"), origin
    assert (await browser.post("/api/v1/tokens", json={}, headers={"origin": URL})).status_code == 201


async def test_refuses_foreign_host_headers(server: Server) -> None:
    client = await server.client()
    assert kind(await client.get("/api/v1/me", headers={"host": "evil.example:7878"})) == (400, "refused")
    assert (await client.get("/api/v1/me", headers={"host": "localhost:7878"})).status_code == 200
    assert (await client.get("/api/v1/me", headers={"host": "[::1]:7878"})).status_code == 200


async def test_every_response_has_security_headers(server: Server) -> None:
    client = await server.client()
    for path in ("/api/v1/me", "/api/v1/docs", "/nowhere", "/api/v1/clusters/none"):
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


async def test_tokens_are_shown_once_and_listed_only_to_their_person(server: Server) -> None:
    admin, eve = await server.client("ann", "admin"), await server.client("eve", "member")
    made = (await admin.post("/api/v1/tokens", json={"person": "bob", "label": "laptop"})).json()
    assert (made["person"], made["role"], made["token"][:3]) == ("bob", "member", "hw_")
    bob = server.anonymous(authorization=f"Bearer {made['token']}")
    assert (await bob.get("/api/v1/me")).json()["role"] == "member"
    assert {row["person"] for row in (await eve.get("/api/v1/tokens")).json()} == {"eve"}
    listed = (await admin.get("/api/v1/tokens")).json()
    assert {row["person"] for row in listed} == {"ann", "eve", "bob"}
    assert all(row["token"] is None for row in listed)
    assert kind(await eve.post("/api/v1/tokens", json={"role": "admin"})) == (403, "not_allowed")
    assert kind(await eve.post("/api/v1/tokens", json={"person": "ann"})) == (403, "not_allowed")
    assert kind(await eve.delete(f"/api/v1/tokens/{made['id']}")) == (404, "not_found")
    assert kind(await admin.post("/api/v1/tokens", json={"person": "no such name"})) == (400, "refused")
    assert kind(await admin.post("/api/v1/tokens", json={"role": "viewer"})) == (400, "refused")
    assert (await admin.delete(f"/api/v1/tokens/{made['id']}")).status_code == 204
    assert (await bob.get("/api/v1/me")).status_code == 401


async def test_writes_are_audited_under_the_real_person(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_command"] = ExecOut(code=0)
    client = await server.client("ann")
    ask = {"argv": ["mysql", "--password=hunter2"], "user": "bob"}
    await client.post("/api/v1/clusters/lab/exec", json=ask)
    latest = (await server.store.audit.search())[0]
    assert (latest.person, latest.action, latest.target, latest.detail["user"]) == ("ann", "exec", "lab", "bob")
    assert "hunter2" not in str(latest.detail)
    assert {"apply", "exec"} <= {row.action for row in await server.store.audit.search()}


async def test_refuses_unknown_fields_and_reports_their_path(server: Server) -> None:
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/down", json={"delete_everything": True})
    out = Problem.model_validate(answer.json())
    assert (answer.status_code, out.faults[0].path) == (422, "body.delete_everything")
    assert kind(await client.get("/api/v1/clusters/nope")) == (404, "not_found")
    assert kind(await client.get("/api/v1/nope")) == (404, "not_found")


async def test_api_docs_load_no_external_resources(server: Server) -> None:
    page = (await server.anonymous().get("/api/v1/docs")).text
    assert "/api/v1/clusters/{name}/apply" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "https://" not in page


async def test_limits_request_bodies_without_content_length(server: Server) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 2**20
            yield b" " * 2**20

    answer = await (await server.client()).post("/api/v1/plan", content=endless())
    assert kind(answer) == (413, "refused")
    assert sent < 20 * 2**20
    sent = 0
    assert (await server.anonymous().post("/api/v1/plan", content=endless())).status_code == 401
    assert sent <= 2 * 2**20


async def test_internal_error_has_security_headers_and_hides_details(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_command"] = ValueError("hunter2")
    answer = await (await server.client()).post("/api/v1/clusters/lab/exec", json={"argv": ["id"]})
    assert kind(answer) == (500, "bug")
    assert "hunter2" not in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


async def test_malformed_requests_answer_4xx_not_500(server: Server) -> None:
    client = await server.client()
    server.backend.answers["plan"] = changes()
    deep = '{"text": "", "spec": {"name": "lab", "nodes": 4, "a": ' + "[" * 900 + "]" * 900 + "}}"
    deeper = "[" * 200_000
    for content in (deeper, '{"text": "", "spec": {"nodes": ' + "9" * 5000 + "}}", "\xff", "NaN"):
        answer = await client.post("/api/v1/plan", content=content, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500, (content[:40], answer.text)
    assert (
        await client.post("/api/v1/plan", content=deep, headers={"content-type": "application/json"})
    ).status_code < 500
    await server.apply()
    operation = (await client.get("/api/v1/operations")).json()[0]["id"]
    for number in ("9" * 30, "9" * 5000):
        events = f"/api/v1/operations/{operation}/events"
        assert (await client.get(events, headers={"last-event-id": number})).status_code in (200, 422)
        assert (await client.get(f"{events}?after={number}")).status_code == 422


async def test_deleting_a_token_ends_its_browser_sessions_and_links(server: Server) -> None:
    admin, eve = await server.client("ann", "admin"), await server.client("eve", "member")
    links = [(await eve.post("/api/v1/signin-links")).json()["url"] for _ in range(2)]
    browser = server.anonymous()
    await browser.get(links[0])
    assert (await browser.get("/api/v1/me")).json()["person"] == "eve"
    (token,) = [row["id"] for row in (await admin.get("/api/v1/tokens")).json() if row["person"] == "eve"]
    assert (await admin.delete(f"/api/v1/tokens/{token}")).status_code == 204
    assert (await browser.get("/api/v1/me")).status_code == 401
    assert (await server.anonymous().get(links[1])).status_code == 401


async def test_refuses_person_that_would_share_a_linux_user(server: Server) -> None:
    root = await server.client("root", "admin")  # acts as `admin` on clusters
    assert kind(await root.post("/api/v1/tokens", json={"person": "admin", "role": "member"})) == (400, "refused")
    assert (await root.post("/api/v1/tokens", json={"person": "bob"})).status_code == 201


async def test_people_whose_names_differ_in_a_digit_are_two_linux_users(server: Server) -> None:
    root = await server.client("root", "admin")
    for name in ("ann1", "ann2"):
        assert (await root.put(f"/api/v1/people/{name}", json={"role": "member"})).status_code == 200
    people = await server.store.people.all()
    assert {one.name: one.linux_user for one in people if one.name.startswith("ann")} == {
        "ann1": "ann1",
        "ann2": "ann2",
    }


async def test_refuses_person_whose_derived_linux_user_is_taken(server: Server) -> None:
    root = await server.client("root", "admin")
    assert (await root.put("/api/v1/people/bob", json={"role": "member", "user": "ann"})).status_code == 200
    assert kind(await root.put("/api/v1/people/ann", json={"role": "member"})) == (400, "refused")


async def test_member_plan_refuses_hosts_and_paths_unknown_to_admins(server: Server) -> None:
    server.backend.answers["plan"] = changes()
    eve = await server.client("eve", "member")
    host = Host(name="lab-head", address="10.0.0.9")
    mine = Dataset(name="d", mount="/datasets/d", source="/home/bob")
    storage = replace(builders.cluster().storage, datasets=(mine,))
    for more in ({"provider": SSH, "hosts": (host,)}, {"storage": storage}):
        server.backend.clusters["lab"] = more
        assert kind(await eve.post("/api/v1/plan", json=document().model_dump())) == (403, "not_allowed"), more
    assert not server.backend.named("plan")
    server.backend.clusters["lab"] = {}
    await server.apply()
    planned = len(server.backend.named("plan"))
    assert (await eve.post("/api/v1/plan", json=document(nodes=5).model_dump())).status_code == 200
    server.backend.clusters["lab"] = {"provider": SSH, "hosts": (host,)}
    assert kind(await eve.post("/api/v1/plan", json=document(nodes=6).model_dump())) == (403, "not_allowed")
    assert len(server.backend.named("plan")) == planned + 1


async def test_limits_concurrent_exec_commands_per_person(server: Server) -> None:
    await server.apply()
    waiting, go = asyncio.Semaphore(0), asyncio.Event()

    async def slow(*_: Any) -> ExecOut:
        waiting.release()
        await go.wait()
        return ExecOut(code=0)

    server.backend.answers["run_command"] = slow
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    ask = {"argv": ["sleep", "9"], "user": "eve"}
    held = [
        asyncio.create_task(eve.post("/api/v1/clusters/lab/exec", json=ask)) for _ in range(MAX_COMMANDS_PER_PERSON)
    ]
    for _ in held:
        await waiting.acquire()
    async with asyncio.timeout(30):  # of a failure: the one too many would wait with the others
        assert kind(await eve.post("/api/v1/clusters/lab/exec", json=ask)) == (429, "too_many_at_once")
    other = asyncio.create_task(bob.post("/api/v1/clusters/lab/exec", json={"argv": ["id"], "user": "bob"}))
    await waiting.acquire()
    go.set()
    assert {(await task).status_code for task in (*held, other)} == {200}
    assert (await eve.post("/api/v1/clusters/lab/exec", json=ask)).status_code == 200


async def test_lead_cancels_team_jobs_but_cannot_exec_as_members(
    server: Server,
) -> None:
    red, blue = Team("red", ("lee", "tim"), 1, leads=("lee",)), Team("blue", ("lee", "bob"), 1)
    users = (User("lee", (), ("red", "blue")), User("tim", (), ("red",)), User("bob", (), ("blue",)))
    server.backend.clusters["lab"] = {"teams": (red, blue), "users": users}
    await server.apply()
    jobs = [builders.job(7, user="tim", account="red"), builders.job(8, user="bob", account="blue")]
    server.backend.answers |= {"read": reading(*jobs), "machines": (), "cancel": None, "follow_log": [b"loss 1.0\n"]}
    lee = await server.client("lee", "lead")
    assert (await lee.delete("/api/v1/clusters/lab/jobs/7")).status_code == 204
    assert [call[1:] for call in server.backend.named("cancel")] == [("7", "lee", True)]
    line = (await server.store.audit.search())[0]
    assert (line.person, line.action, line.detail) == ("lee", "cancel", {"job": 7, "of": "tim"})
    assert (await lee.get("/api/v1/clusters/lab/jobs/7/log")).status_code == 200
    assert kind(await lee.delete("/api/v1/clusters/lab/jobs/8")) == (403, "not_allowed")
    assert kind(await lee.post("/api/v1/clusters/lab/exec", json={"argv": ["id"], "user": "tim"})) == (
        403,
        "not_allowed",
    )
    member = await server.client("lee", "member")  # named in the file, but not given the role
    assert kind(await member.delete("/api/v1/clusters/lab/jobs/7")) == (403, "not_allowed")
