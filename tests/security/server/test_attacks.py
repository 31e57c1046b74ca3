"""People with few rights cannot gain more by crafted requests."""

from __future__ import annotations

import asyncio
import base64
import csv
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from headway.api.http import authorized_stream
from headway.domain.teams import Team, User
from headway.errors import Conflict
from headway.schemas.event_stream import ClusterEventOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.jobs.notebooks.notebooks import owner_may_still_open
from headway.store import AuditAsk, NotebookRow
from tests.support.api.api_routes import ask, routes
from tests.support.api.streamed_answer import streamed
from tests.support.clusters import builders
from tests.support.servers.server_fakes import URL, Server, reading

API = "/api/v1"
HOSTILE = "<img src=x onerror=alert(1)>\"'"


async def browser_of(server: Server, person: str, role: str) -> httpx.AsyncClient:
    client = await server.client(person, role)
    link = (await client.post(f"{API}/signin-links")).json()["url"]
    browser = server.anonymous(origin=URL)
    assert (await browser.get(link)).status_code == 303
    return browser


def teams(server: Server) -> None:
    """lee leads tim's team; eve is in none of theirs."""
    red, blue = Team("red", ("lee", "tim"), 1, leads=("lee",)), Team("blue", ("eve",), 1)
    users = (User("lee", (), ("red",)), User("tim", (), ("red",)), User("eve", (), ("blue",)))
    server.backend.clusters["lab"] = {"teams": (red, blue), "users": users}


# --- answers that go on


class Endless:
    """What a followed log or a watched command gives: one piece, then nothing until somebody lets go."""

    def __init__(self, piece: Any) -> None:
        self.piece = piece
        self.closed = asyncio.Event()

    async def __call__(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        try:
            yield self.piece
            await asyncio.Event().wait()
        finally:
            self.closed.set()


FOLLOWED: list[tuple[str, str, bytes, str]] = [
    ("GET", f"{API}/clusters/lab/jobs/7/log?follow=true", b"", "follow_log"),
    ("POST", f"{API}/clusters/lab/commands", b'{"argv": ["top"], "user": "tim"}', "run_interactive"),
    ("GET", f"{API}/clusters/lab/events", b"", ""),
    ("GET", f"{API}/operations/{{operation}}/events", b"", ""),
]


@pytest.mark.parametrize(("method", "path", "body", "call"), FOLLOWED, ids=["log", "command", "events", "operation"])
async def test_deleting_a_token_ends_its_open_streams(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: bytes, call: str
) -> None:
    monkeypatch.setattr(authorized_stream, "RECHECK_S", 0.02)
    teams(server)
    await server.apply()
    endless = Endless(("out", b"x") if call == "run_interactive" else b"line\n")
    part = server.backend.commands if call == "run_interactive" else server.backend.jobs
    monkeypatch.setattr(part, call or "follow_log", endless)
    server.backend.answers |= {"read": reading(builders.job(7, user="tim", account="red")), "machines": ()}
    await server.store.people.set_role("tim", "member")
    token, secret = await server.store.tokens.create("tim")
    (operation, *_) = await server.store.operations.recent("lab")
    unfinished = replace(operation, finished_at=None) if hasattr(operation, "finished_at") else operation
    if "{operation}" in path:
        monkeypatch.setattr(server.store.operations, "get", lambda _: _soon(_running(unfinished)))
    begun = asyncio.Event()
    path = path.replace("{operation}", operation.id)
    task = asyncio.create_task(streamed(server, path, secret, begun, method, body))
    await begun.wait()
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done, task.result()
    await server.store.tokens.delete(token.id)
    status, _ = await task
    assert status == 200
    if call:
        assert endless.closed.is_set(), "what was begun for them goes on"


async def _soon(value: Any) -> Any:
    return value


def _running(operation: Any) -> Any:
    from unittest.mock import Mock

    made = Mock(wraps=operation)
    made.finished, made.cluster = False, operation.cluster
    return made


async def test_demoted_lead_loses_a_followed_member_log(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorized_stream, "RECHECK_S", 0.02)
    teams(server)
    await server.apply()
    monkeypatch.setattr(server.backend.jobs, "follow_log", Endless(b"line\n"))
    server.backend.answers |= {"read": reading(builders.job(7, user="tim", account="red")), "machines": ()}
    await server.store.people.set_role("lee", "lead")
    _, secret = await server.store.tokens.create("lee")
    begun = asyncio.Event()
    task = asyncio.create_task(streamed(server, f"{API}/clusters/lab/jobs/7/log?follow=true", secret, begun))
    await begun.wait()
    await server.store.people.set_role("lee", "member")
    status, content = await task
    assert status == 200
    assert content.startswith(b"line\n--- lee may not ")


# --- notebooks


async def test_notebook_requires_the_owner_to_keep_their_linux_user(server: Server) -> None:
    await server.apply()
    row = NotebookRow("0123456789abcdef", "lab", 7, "alice", "alice", "/f", "s", 60, 0.0)
    await server.store.people.set_role("alice", "member")
    assert await owner_may_still_open(server.state, row)
    await server.store.people.change("alice", role="member", user="")  # their Linux user was taken away
    assert not await owner_may_still_open(server.state, row)
    await server.store.people.change("alice", role="member", user="bob")  # or is another now
    assert not await owner_may_still_open(server.state, row)


@pytest.mark.parametrize("how", ["signout", "token", "removed", "role"])
async def test_notebook_sessions_end_with_sign_out_token_person_or_role(server: Server, how: str) -> None:
    admin = await server.client("ann")
    browser = await browser_of(server, "eve", "member")
    notebooks, now = server.state.notebooks, server.state.clock()
    session = notebooks.create_session("n1", "eve", now)
    assert notebooks.check_session(session, "n1", now)
    (token,) = await server.store.tokens.all("eve")
    ways: dict[str, Callable[[], Awaitable[httpx.Response]]] = {
        "signout": lambda: browser.post("/signout"),
        "token": lambda: admin.delete(f"{API}/tokens/{token.id}"),
        "removed": lambda: admin.delete(f"{API}/people/eve"),
        "role": lambda: admin.put(f"{API}/people/eve", json={"role": "viewer"}),
    }
    assert (await ways[how]()).status_code < 400
    assert notebooks.check_session(session, "n1", now) is None


# --- sessions and signing in


async def test_cross_site_sign_in_link_requires_confirmation(server: Server) -> None:
    """Or a browser would work, and keep its secrets, in the account of whoever laid the link out."""
    client = await server.client("eve", "member")
    for site in ("cross-site", "same-site"):
        link = (await client.post(f"{API}/signin-links")).json()["url"]
        browser = server.anonymous()
        answer = await browser.get(link, headers={"sec-fetch-site": site})
        assert (answer.status_code, dict(browser.cookies)) == (200, {}), site
        code = link.partition("code=")[2]
        assert f'value="{code}"' in answer.text
        assert (await browser.post("/signin/link", data={"code": code})).status_code == 403  # not from our page
        agreed = await browser.post("/signin/link", data={"code": code}, headers={"origin": URL})
        assert agreed.status_code == 303
        assert (await browser.get(f"{API}/me")).json()["person"] == "eve"
    link = (await client.post(f"{API}/signin-links")).json()["url"]
    assert (await server.anonymous().get(link, headers={"sec-fetch-site": "none"})).status_code == 303


async def test_signing_in_again_ends_the_previous_session(server: Server) -> None:
    browser = await browser_of(server, "eve", "member")
    before = dict(browser.cookies)
    assert before["headway_test"]
    ann = await server.client("ann")
    link = (await ann.post(f"{API}/signin-links")).json()["url"]
    assert (await browser.get(link)).status_code == 303
    assert (await browser.get(f"{API}/me")).json()["person"] == "ann"
    assert browser.cookies["headway_test"] != before["headway_test"]
    assert (await server.anonymous().get(f"{API}/me", cookies=before)).status_code == 401


async def test_preset_session_cookie_is_not_accepted(server: Server) -> None:
    fixed = server.anonymous(origin=URL)
    fixed.cookies.set("headway_test", "chosen-by-somebody-else")
    link = (await (await server.client("eve", "member")).post(f"{API}/signin-links")).json()["url"]
    answer = await fixed.get(link)
    assert "chosen-by-somebody-else" not in answer.headers["set-cookie"]
    other = server.anonymous()
    assert (await other.get(f"{API}/me", cookies={"headway_test": "chosen-by-somebody-else"})).status_code == 401


async def test_sign_in_ignores_external_redirect_targets(server: Server) -> None:
    client = await server.client("eve", "member")
    link = (await client.post(f"{API}/signin-links")).json()["url"]
    for more in ("&next=//evil.example", "&return_to=https://evil.example", "&redirect=https:evil.example"):
        answer = await server.anonymous().get(link + more)
        assert answer.headers.get("location", "/") == "/"


async def test_guessing_an_account_does_not_lock_out_its_owner(server: Server) -> None:
    ann = await server.client("ann")
    token = (await ann.post(f"{API}/tokens", json={})).json()["token"]
    browser = server.anonymous(origin=URL)
    for _ in range(25):
        answer = await browser.post("/signin", data={"person": "ann", "token": "hw_guess"})
    assert answer.status_code == 429
    assert (await browser.post("/signin", data={"person": "ann", "token": token})).status_code == 303


# --- writes from elsewhere


async def test_refuses_form_posts_from_other_origins(server: Server) -> None:
    await server.apply()
    browser = await browser_of(server, "ann", "admin")
    before = len(await server.store.tokens.all())
    for kind, content in (
        ("text/plain", b'{"label": "x"}'),
        ("application/x-www-form-urlencoded", b"label=x"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n--x--"),
        ("", b'{"label": "x"}'),
    ):
        for origin in ("http://evil.example", "null", "http://n-a.notebooks.localhost:7879", f"{URL}.evil.example", ""):
            headers = {"content-type": kind, "origin": origin}
            for path in (f"{API}/tokens", "/tokens", f"{API}/clusters/lab/down", "/signout", "/people"):
                answer = await browser.post(path, content=content, headers=headers)
                assert answer.status_code in (400, 403), (path, kind, origin)  # 400: no form at all
    assert len(await server.store.tokens.all()) == before
    assert (await browser.get(f"{API}/me")).status_code == 200


# --- other people's things


async def test_reused_job_id_does_not_show_the_script_of_its_earlier_owner(server: Server) -> None:
    """Job 7 was bob's once, by way of Headway; the controller has begun to count anew and tim has it now."""
    teams(server)
    await server.apply()
    request = {"script": "#!/bin/sh\necho of-bob\n", "script_name": "bobs.sh"}
    await server.store.jobs.record(
        "lab", 7, person="bob", user="bob", kind="submit", request=request, facts={}, audit={}
    )
    text = base64.b64encode(b"#!/bin/sh\necho of-tim\n").decode()
    server.backend.answers |= {
        "read": reading(builders.job(7, user="tim", account="red")), "machines": (), "job_runs": (), "history": (),
        "run_command": ExecOut(code=0, stdout_b64=text),
    }  # fmt: skip
    tim = await server.client("tim", "member")
    for path in (f"{API}/clusters/lab/jobs/7/script", "/clusters/lab/jobs/7", "/clusters/lab/submit?from=7"):
        said = (await tim.get(path)).text
        assert "of-bob" not in said, path
        assert "of-tim" in said, path


async def test_cluster_token_sees_no_other_cluster_on_any_page(server: Server) -> None:
    await server.apply("lab")
    await server.apply("secretcluster")
    server.state.live.publish_events(
        ClusterEventOut(kind="job", cluster="secretcluster", at=1.0, name="7", state="RUNNING")
    )
    server.backend.answers |= {"read": reading(), "machines": (), "readiness_checks": (), "history": (), "shares": ()}
    await server.store.people.set_role("ann", "admin")
    _, token = await server.store.tokens.create("ann", cluster="lab")
    client = server.anonymous(authorization=f"Bearer {token}")
    server.state.live.stopping.set()
    for _, method, path in routes(server):
        if method == "GET":
            asked = path.replace(":path}", "}").format_map(_Anything(name="secretcluster", node="secretcluster-1-1"))
            answer = await client.get(asked)
            assert "secretcluster" not in answer.text.replace(asked, ""), asked
            if "{name}" in path:
                assert answer.status_code == 403 or answer.text == "", asked  # a stream that ends at once


class _Anything(dict[str, str]):
    def __missing__(self, _: str) -> str:
        return "1"


async def test_only_admins_see_server_paths_and_pid(server: Server) -> None:
    vic = (await (await server.client("vic", "viewer")).get(f"{API}/server")).json()
    assert (vic["state_dir"], vic["database"], vic["pid"]) == ("", "", 0)
    assert (await (await server.client("ann")).get(f"{API}/server")).json()["pid"]


# --- texts that would be something else


async def test_pages_escape_all_user_supplied_text(server: Server) -> None:
    teams(server)
    await server.apply()
    job = replace(
        builders.job(7, "PENDING", user="tim", account="red"),
        name=HOSTILE, reason=HOSTILE, comment=HOSTILE, stdout=f"/{HOSTILE}", stderr=f"/{HOSTILE}2", command=HOSTILE,
        workdir=HOSTILE, dependency=HOSTILE, features=HOSTILE, reservation=HOSTILE, partition=HOSTILE,
    )  # fmt: skip
    running = replace(job, id=8, state="RUNNING", nodes=("lab-1-1",), start_time=900)
    ended = replace(job, id=9, state="FAILED", nodes=("lab-1-1",), start_time=800, end_time=900)
    node = replace(builders.node("lab-1-1", "DRAINED"), reason=HOSTILE)
    server.backend.answers |= {
        "read": reading(job, running, ended, nodes=(node,)), "machines": (), "readiness_checks": (), "history": (ended,),
        "shares": (), "job_runs": (ended,), "job": ended, "run_command": ExecOut(code=0),
    }  # fmt: skip
    kept = {"script": f"#!/bin/sh\n{HOSTILE}", "script_name": HOSTILE, "script_args": [HOSTILE], "env": {"A": HOSTILE}}
    facts = {"container_image": HOSTILE, "launcher": HOSTILE}
    for number in (7, 8, 9):
        await server.store.jobs.record(
            "lab", number, person="tim", user="tim", kind="submit", request=kept, facts=facts, audit={"x": HOSTILE}
        )
    await server.store.audit.record(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, address=HOSTILE)
    await server.store.tokens.create("setup", label=HOSTILE)
    await server.store.people.add_from_provider(HOSTILE, HOSTILE, role="member", user="")
    server.state.live.add_recent_event("lab", HOSTILE, where=HOSTILE)
    await server.store.people.set_role("ann", "admin")
    _, token = await server.store.tokens.create("ann")
    server.state.live.stopping.set()
    seen = 0
    for key, method, path in routes(server):
        if method != "GET" or " api/" in key:
            continue
        for number in ("7", "8", "9"):
            names = {"name": "lab", "node": "lab-1-1", "job_id": number, "number": "1", "operation_id": "x"}
            asked = path.replace(":path}", "}").format_map(_Anything(names))
            if number != "7" and "{job_id}" not in path:
                continue
            for query in ("", f"?q={httpx.QueryParams({'x': HOSTILE})['x']}", f"?job={number}"):
                _, first = await ask(server, "GET", asked + query, token)
                text = first.decode()
                assert "<img" not in text, (asked, text[max(0, text.find("<img") - 200) :][:400])
                seen += html.escape("<img src=x") in text
    assert seen > 12, "the pages show none of these texts: this test sees nothing"


async def test_csv_export_neutralizes_spreadsheet_formulas(server: Server) -> None:
    ann = await server.client("ann")
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"):
        await server.store.audit.record(text, "cancel", text, {})
    rows = csv.reader((await ann.get(f"{API}/audit/export?format=csv&action=cancel")).text.splitlines(keepends=True))
    for row in list(rows)[1:]:
        assert all(cell[:1] not in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" or not cell for cell in row), row


async def test_names_of_downloads_are_set_by_the_server(server: Server) -> None:
    await server.apply()
    ann = await server.client("ann")
    for path in (f"{API}/audit/export?format=csv", f"{API}/audit/export?format=jsonl"):
        answer = await ann.get(
            path, params={"format": path.rpartition("=")[2], "filename": 'x";y.exe', "person": 'a";b'}
        )
        name = re.fullmatch(r'attachment; filename="?([\w.-]+)"?', answer.headers["content-disposition"])
        assert name is not None, answer.headers["content-disposition"]
        assert name[1].endswith(path.rpartition("=")[2])


# --- addresses and bodies out of shape


async def test_folders_are_not_listed_and_trace_is_refused(server: Server) -> None:
    ann = await server.client("ann")
    for folder in ("/static/", "/static/vendor/", "/static/docs/assets/"):
        assert (await ann.get(folder)).status_code == 404, folder
    for path in ("/", f"{API}/me", "/static/app.css", "/signin"):
        answer = await ann.request("TRACE", path, headers={"x-probe": "echoed"})
        assert answer.status_code in (404, 405), path
        assert "echoed" not in answer.text


async def test_repeated_parameter_has_one_meaning(server: Server) -> None:
    """The last one counts for each parameter with one value, so that no check sees another value than the code."""
    ann = await server.client("ann")
    for number in range(3):
        await server.store.audit.record("ann", "cancel", str(number), {})
    twice = await ann.get(f"{API}/audit?limit=3&limit=1&action=cancel")
    assert twice.status_code == 200
    assert len(twice.json()["lines"]) == len((await ann.get(f"{API}/audit?limit=1&action=cancel")).json()["lines"]) == 1


async def test_sign_in_page_has_no_hints_and_no_secret_questions(server: Server) -> None:
    page = (await server.anonymous(origin=URL).get("/signin")).text
    fields = re.findall(r'<input[^>]* name="(\w+)"', page)
    assert sorted(set(fields) - {"next", "again"}) == ["person", "token"]


async def test_crafted_cursors_do_not_cause_server_errors(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(*(builders.job(n) for n in (1, 2, 3))), "machines": ()}
    ann = await server.client("ann")
    made: list[Any] = [["", [None]], ["", [[1], {}]], ["", "abc"], [1, 2, 3], {}, ["", []], ["", [float("nan")] * 3]]
    made += [["-id", [10**400]], ["", ["7"] * 9]]
    cursors = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in made]
    for cursor in ("x", "\u00e9", "A" * 5000, *cursors):
        for path in (f"{API}/clusters/lab/jobs", "/clusters/lab/queue", f"{API}/audit", "/audit"):
            answer = await ann.get(path, params={"cursor": cursor})
            assert answer.status_code < 500, (path, answer.text[:300])


async def test_refuses_path_traversal_and_header_injection(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(), "machines": ()}
    ann = await server.client("ann")
    for path in (
        "/static/..%2f..%2fapp.py", "/static/%2e%2e/%2e%2e/app.py", "/static//etc/passwd", "/static/..\\..\\app.py",
        f"{API}/clusters/..%2flab", f"{API}/clusters/lab%00", f"{API}/clusters/lab%0d%0aset-cookie:x=y/jobs",
        f"{API}/clusters/lab/nodes/..%2f..%2f", f"{API}/clusters/lab/nodes/lab-1-1%0a/history", "//evil.example/%2e%2e",
        f"{API}/clusters/lab/metrics?series=gpu_power&node=lab-1-1%22%7D", "/clusters/lab/jobs/7%2f..%2f8",
        f"{API}/clusters/lab/jobs/7/log?task=1%0a2", f"{API}/clusters/lab/bundles/{'0' * 63}%2e",
    ):  # fmt: skip
        answer = await ann.get(path)
        assert 400 <= answer.status_code < 500, (path, answer.status_code)
        assert "x=y" not in str(answer.headers)


async def test_idempotency_key_never_replays_the_answer_of_another_person(server: Server) -> None:
    done = SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve")
    await server.apply()
    server.backend.answers["submit"] = done
    eve, ann = await server.client("eve", "member"), await server.client("ann")
    key = {"idempotency-key": "same"}
    first = await eve.post(f"{API}/tokens", json={"label": "eve's"}, headers=key)
    second = await ann.post(f"{API}/tokens", json={"label": "eve's"}, headers=key)
    assert (first.json()["person"], second.json()["person"]) == ("eve", "ann")
    (token, *_) = [one for one in await server.store.tokens.all("eve") if one.label == ""]
    await server.store.tokens.delete(token.id)
    assert (await eve.post(f"{API}/tokens", json={"label": "eve's"}, headers=key)).status_code == 401


async def test_provider_names_that_no_url_can_hold_are_replaced() -> None:
    from headway.services.access.oidc_claims import name_from_claims

    for said in (".", "..", "...", "/", "a/b", " ", "‮nna", "\x00", "-", "anna"):
        name = name_from_claims({"preferred_username": said, "sub": "u1"})
        assert name.strip("./-"), said
        assert "/" not in name
        assert name.isprintable()


async def test_failed_write_is_audited_without_error_details(server: Server) -> None:
    await server.apply()
    server.backend.answers["cancel"] = ValueError("hunter2")
    server.backend.answers |= {"read": reading(builders.job(7, user="bob")), "machines": ()}
    answer = await (await server.client()).delete(f"{API}/clusters/lab/jobs/7")
    assert answer.status_code == 500
    (line,) = await server.store.audit.search(AuditAsk(result="failed"))
    assert (line.person, line.action, line.target) == ("ann", "cancel", "lab/7")
    assert "hunter2" not in str(line)


async def test_last_fully_entitled_admin_cannot_be_demoted_or_deleted(server: Server) -> None:
    """Without a Linux user an admin may only look, as one whom the sign-in provider sends may be."""
    ann = await server.client("ann", "admin")
    await server.store.people.add_from_provider("oda", "https://provider.example.org oda", role="admin", user="")
    for role, user in (("admin", ""), ("viewer", "ann")):
        with pytest.raises(Conflict, match="only admin"):
            await server.store.people.change("ann", role=role, user=user)
    with pytest.raises(Conflict, match="only admin"):
        await server.store.people.delete("ann")
    assert (await ann.get("/api/v1/people")).status_code == 200
    await server.store.people.change("oda", role="admin", user="oda")
    await server.store.people.change("ann", role="admin", user="")
