"""People with few rights cannot gain more by crafted requests."""

from __future__ import annotations

import asyncio
import base64
import csv
import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from headway.api.http import revalidated_stream
from headway.domain.cluster import Team, User
from headway.errors import Conflict
from headway.schemas.clusters import NewsOut
from headway.schemas.submissions import ExecOut, SubmitOut
from headway.services.jobs.notebooks import owner_may_still_open
from headway.store import AuditAsk, NotebookRow
from headway.store.access import sessions
from tests.support import builders
from tests.support.server_fakes import URL, Server, reading

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


async def streamed(
    server: Server, path: str, token: str, begun: asyncio.Event, method: str = "GET", body: bytes = b""
) -> tuple[int, bytes]:
    """(status, all that came) until the server ends the answer."""
    from tests.integration.api.test_route_access import scope_of

    status, content, asked = 0, b"", False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")
        begun.set()

    async with asyncio.timeout(60):
        await server.app(scope_of(method, path, token, body), receive, send)
    return status, content


FOLLOWED: list[tuple[str, str, bytes, str]] = [
    ("GET", f"{API}/clusters/lab/jobs/7/log?follow=true", b"", "follow_log"),
    ("POST", f"{API}/clusters/lab/commands", b'{"argv": ["top"], "user": "tim"}', "run_interactive"),
    ("GET", f"{API}/clusters/lab/events", b"", ""),
    ("GET", f"{API}/operations/{{operation}}/events", b"", ""),
]


@pytest.mark.parametrize(("method", "path", "body", "call"), FOLLOWED, ids=["log", "command", "events", "operation"])
async def test_an_answer_that_goes_on_ends_with_the_token_it_was_asked_by(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: bytes, call: str
) -> None:
    monkeypatch.setattr(revalidated_stream, "RECHECK_S", 0.02)
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


async def test_a_lead_who_is_none_any_more_follows_a_member_s_log_no_longer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revalidated_stream, "RECHECK_S", 0.02)
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


async def test_who_only_looks_on_is_not_let_into_a_notebook(server: Server) -> None:
    await server.apply()
    row = NotebookRow("0123456789abcdef", "lab", 7, "alice", "alice", "/f", "s", 60, 0.0)
    await server.store.people.set_role("alice", "member")
    assert await owner_may_still_open(server.state, row)
    await server.store.people.change("alice", role="member", user="")  # their Linux user was taken away
    assert not await owner_may_still_open(server.state, row)
    await server.store.people.change("alice", role="member", user="bob")  # or is another now
    assert not await owner_may_still_open(server.state, row)


@pytest.mark.parametrize("how", ["signout", "token", "removed", "role"])
async def test_notebooks_close_with_the_sessions_of_their_person(server: Server, how: str) -> None:
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


async def test_another_site_s_link_signs_nobody_in_unasked(server: Server) -> None:
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


async def test_signing_in_again_ends_the_session_before(server: Server) -> None:
    browser = await browser_of(server, "eve", "member")
    before = dict(browser.cookies)
    assert before["headway_test"]
    ann = await server.client("ann")
    link = (await ann.post(f"{API}/signin-links")).json()["url"]
    assert (await browser.get(link)).status_code == 303
    assert (await browser.get(f"{API}/me")).json()["person"] == "ann"
    assert browser.cookies["headway_test"] != before["headway_test"]
    assert (await server.anonymous().get(f"{API}/me", cookies=before)).status_code == 401


async def test_a_cookie_that_somebody_else_chose_is_no_session(server: Server) -> None:
    fixed = server.anonymous(origin=URL)
    fixed.cookies.set("headway_test", "chosen-by-somebody-else")
    link = (await (await server.client("eve", "member")).post(f"{API}/signin-links")).json()["url"]
    answer = await fixed.get(link)
    assert "chosen-by-somebody-else" not in answer.headers["set-cookie"]
    other = server.anonymous()
    assert (await other.get(f"{API}/me", cookies={"headway_test": "chosen-by-somebody-else"})).status_code == 401


async def test_after_signing_in_one_is_here_and_nowhere_else(server: Server) -> None:
    client = await server.client("eve", "member")
    link = (await client.post(f"{API}/signin-links")).json()["url"]
    for more in ("&next=//evil.example", "&return_to=https://evil.example", "&redirect=https:evil.example"):
        answer = await server.anonymous().get(link + more)
        assert answer.headers.get("location", "/") == "/"


async def test_guessing_at_one_account_does_not_lock_its_person_out(server: Server) -> None:
    ann = await server.client("ann")
    token = (await ann.post(f"{API}/tokens", json={})).json()["token"]
    browser = server.anonymous(origin=URL)
    for _ in range(25):
        answer = await browser.post("/signin", data={"person": "ann", "token": "hw_guess"})
    assert answer.status_code == 429
    assert (await browser.post("/signin", data={"person": "ann", "token": token})).status_code == 303


async def test_who_only_begins_to_sign_in_fills_no_database(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OIDC_FLOWS_KEPT", 3)
    for number in range(8):
        server.state.clock.now += 1  # type: ignore[attr-defined]
        await server.store.sessions.start_oidc_flow(f"s{number}", "n", "v")
    found = [await server.store.sessions.finish_oidc_flow(f"s{number}") for number in range(8)]
    assert [one is not None for one in found] == [False] * 5 + [True] * 3


# --- writes from elsewhere


async def test_a_form_of_another_site_writes_nothing(server: Server) -> None:
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


async def test_a_job_s_number_that_came_again_shows_no_stranger_s_script(server: Server) -> None:
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


async def test_a_token_for_one_cluster_hears_of_no_other_on_any_page(server: Server) -> None:
    from tests.integration.api.test_route_access import routes

    await server.apply("lab")
    await server.apply("secretcluster")
    server.state.live.publish_events(NewsOut(kind="job", cluster="secretcluster", at=1.0, name="7", state="RUNNING"))
    server.backend.answers |= {"read": reading(), "machines": (), "readiness_checks": (), "history": (), "shares": ()}
    await server.store.people.set_role("ann", "admin")
    _, token = await server.store.tokens.create("ann", cluster="lab")
    client = server.anonymous(authorization=f"Bearer {token}")
    server.state.live.stopping.set()
    for _, method, path in routes(server):
        if method == "GET":
            asked = path.format_map(_Anything(name="secretcluster", node="secretcluster-1-1"))
            answer = await client.get(asked)
            assert "secretcluster" not in answer.text.replace(asked, ""), asked
            if "{name}" in path:
                assert answer.status_code == 403 or answer.text == "", asked  # a stream that ends at once


class _Anything(dict[str, str]):
    def __missing__(self, _: str) -> str:
        return "1"


async def test_where_the_server_lives_is_for_admins(server: Server) -> None:
    vic = (await (await server.client("vic", "viewer")).get(f"{API}/server")).json()
    assert (vic["state_dir"], vic["database"], vic["pid"]) == ("", "", 0)
    assert (await (await server.client("ann")).get(f"{API}/server")).json()["pid"]


# --- texts that would be something else


async def test_no_text_of_anybody_s_becomes_html(server: Server) -> None:
    from tests.integration.api.test_route_access import ask, routes

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
    server.state.live.add_notice("lab", HOSTILE, where=HOSTILE)
    await server.store.people.set_role("ann", "admin")
    _, token = await server.store.tokens.create("ann")
    server.state.live.stopping.set()
    seen = 0
    for key, method, path in routes(server):
        if method != "GET" or " api/" in key:
            continue
        for number in ("7", "8", "9"):
            names = {"name": "lab", "node": "lab-1-1", "job_id": number, "number": "1", "operation_id": "x"}
            asked = path.format_map(_Anything(names))
            if number != "7" and "{job_id}" not in path:
                continue
            for query in ("", f"?q={httpx.QueryParams({'x': HOSTILE})['x']}", f"?job={number}"):
                _, first = await ask(server, "GET", asked + query, token)
                text = first.decode()
                assert "<img" not in text, (asked, text[max(0, text.find("<img") - 200) :][:400])
                seen += html.escape("<img src=x") in text
    assert seen > 12, "the pages show none of these texts: this test sees nothing"


async def test_a_spreadsheet_takes_nothing_of_the_trail_for_a_formula(server: Server) -> None:
    ann = await server.client("ann")
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"):
        await server.store.audit.record(text, "cancel", text, {})
    rows = csv.reader((await ann.get(f"{API}/audit/export?format=csv&action=cancel")).text.splitlines(keepends=True))
    for row in list(rows)[1:]:
        assert all(cell[:1] not in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" or not cell for cell in row), row


# --- addresses and bodies out of shape


async def test_a_cursor_of_somebody_s_own_making_is_no_bug(server: Server) -> None:
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


async def test_tricks_with_paths_lead_nowhere(server: Server) -> None:
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


async def test_a_body_without_end_is_bounded_also_where_it_is_kept_for_its_key(server: Server) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 2**20
            yield b" " * 2**20

    client = await server.client("ann", "admin", **{"idempotency-key": "k"})
    answer = await client.post(f"{API}/plan", content=endless())
    assert answer.status_code == 413, answer.text
    assert sent < 20 * 2**20
    again = await client.post(f"{API}/signin-links")
    assert again.status_code == 201  # the key is free


async def test_a_key_gives_nobody_else_s_answer(server: Server) -> None:
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


async def test_names_that_no_address_can_say_are_not_taken_from_the_provider() -> None:
    from headway.api.auth.oidc import _name

    for said in (".", "..", "...", "/", "a/b", " ", "‮nna", "\x00", "-", "anna"):
        name = _name({"preferred_username": said, "sub": "u1"})
        assert name.strip("./-"), said
        assert "/" not in name
        assert name.isprintable()


async def test_what_broke_under_a_write_is_in_the_trail(server: Server) -> None:
    await server.apply()
    server.backend.answers["cancel"] = ValueError("hunter2")
    server.backend.answers |= {"read": reading(builders.job(7, user="bob")), "machines": ()}
    answer = await (await server.client()).delete(f"{API}/clusters/lab/jobs/7")
    assert answer.status_code == 500
    (line,) = await server.store.audit.search(AuditAsk(result="failed"))
    assert (line.person, line.action, line.target) == ("ann", "cancel", "lab/7")
    assert "hunter2" not in str(line)


async def test_the_last_admin_who_may_do_anything_stays_one(server: Server) -> None:
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
