"""Restricted tokens, people and roles, sign-in attempts and the audit trail behave as documented."""

from __future__ import annotations

import asyncio
import csv
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from headway.domain.access import session_validity
from headway.domain.access.session_validity import SESSION_IDLE_S
from headway.errors import TooManyTries
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.access.role_rights import TOKEN_SCOPES
from headway.services.login_throttle import MAX_FAILURES, MAX_KEYS, LoginThrottle, address_key
from headway.services.server_settings import Oidc
from headway.store import AuditAsk, Store
from tests.support.clusters import builders
from tests.support.servers.server_fakes import URL, Server, reading

API = "/api/v1"


async def held(server: Server, person: str, role: str, **ask: object) -> httpx.AsyncClient:
    """Somebody with a token that is cut down."""
    client = await server.client(person, role)
    made = await client.post(f"{API}/tokens", json=ask)
    assert made.status_code == 201, made.text
    return server.anonymous(authorization=f"Bearer {made.json()['token']}")


async def test_token_rights_are_limited_by_scopes_and_by_role(server: Server) -> None:
    await server.apply()
    server.state.settings = replace(server.state.settings, oidc=Oidc("https://id.example.org", "headway"))
    done = SubmitOut(job_id=5, cluster="lab", user="ann", workdir="/home/ann")
    server.backend.answers |= {"read": reading(), "machines": (), "submit": done}
    wanted = {  # by an admin's token: jobs, drain and the like, a new token
        "read": (200, 403, 403, 403),
        "plan": (200, 403, 403, 403),
        "submit": (200, 201, 403, 403),
        "operate": (200, 403, 404, 403),
        "admin": (200, 403, 403, 403),
        "scim": (403, 403, 403, 403),
        "all": (200, 201, 404, 201),
    }
    assert wanted.keys() == TOKEN_SCOPES.keys()
    for scope, expected in wanted.items():
        client = await held(server, "ann", "admin", scopes=[scope])
        found = (
            (await client.get(f"{API}/clusters/lab/jobs")).status_code,
            (await client.post(f"{API}/clusters/lab/jobs", json={})).status_code,
            (await client.post(f"{API}/clusters/lab/incidents/1/return", json={})).status_code,
            (await client.post(f"{API}/tokens", json={})).status_code,
        )
        assert found == expected, scope
    viewer = await held(server, "vic", "viewer", scopes=["all"])
    assert (await viewer.post(f"{API}/clusters/lab/jobs", json={})).status_code == 403
    refused = await (await held(server, "ann", "admin", scopes=["read"])).post(f"{API}/signin-links")
    assert "is for read" in refused.json()["detail"]


async def test_cluster_token_cannot_access_other_clusters(server: Server) -> None:
    await server.apply("lab")
    await server.apply("prod")
    client = await held(server, "ann", "admin", cluster="lab")
    assert [one["name"] for one in (await client.get(f"{API}/clusters")).json()] == ["lab"]
    assert {one["cluster"] for one in (await client.get(f"{API}/operations")).json()} == {"lab"}
    others = [one.id for one in await server.store.operations.recent("prod")]
    for path in ("/clusters/prod", "/clusters/prod/jobs", f"/operations/{others[0]}", "/tokens", "/people", "/audit"):
        assert (await client.get(API + path)).status_code == 403, path
    assert (await client.get("/clusters/prod")).status_code == 403  # its page
    assert (await client.get(f"{API}/clusters/lab")).status_code == 200
    nowhere = await (await server.client()).post(f"{API}/tokens", json={"cluster": "nope"})
    assert nowhere.status_code == 404


async def test_stores_only_token_hashes(server: Server, tmp_path: Path) -> None:
    client = await server.client()
    secret = (await client.post(f"{API}/tokens", json={"label": "x"})).json()["token"]
    assert len(secret) >= 3 + 43  # "hw_" and 256 bits
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("headway.db*"))
    assert secret.encode() not in stored
    assert secret.removeprefix("hw_").encode() not in stored


async def test_admins_add_change_and_remove_people(server: Server) -> None:
    await server.apply()
    ann, bob = await server.client("ann"), await server.client("bob", "member")
    made = await ann.put(f"{API}/people/olga", json={"role": "operator"})
    assert (made.status_code, made.json()["user"], made.json()["role"]) == (200, "olga", "operator")
    assert (await ann.put(f"{API}/people/olga", json={"role": "lead", "user": "bob"})).status_code == 400
    only_looks = (await ann.put(f"{API}/people/bob", json={"role": "member", "user": ""})).json()
    assert only_looks["user"] == ""
    assert (await bob.get(f"{API}/me")).json()["role"] == "viewer"
    assert (await bob.post(f"{API}/clusters/lab/jobs", json={})).status_code == 403
    assert (await ann.put(f"{API}/people/bob", json={"role": "member", "user": "bob"})).json()["user"] == "bob"
    assert (await bob.get(f"{API}/me")).json()["role"] == "member"
    await server.store.people.delete("setup")
    assert (await ann.put(f"{API}/people/ann", json={"role": "member"})).status_code == 409
    assert (await ann.delete(f"{API}/people/ann")).status_code == 409
    assert (await ann.delete(f"{API}/people/bob")).status_code == 204
    assert (await bob.get(f"{API}/me")).status_code == 401
    assert (await ann.delete(f"{API}/people/bob")).status_code == 404


async def test_creating_a_token_with_a_role_changes_the_person(server: Server) -> None:
    ann, bob = await server.client("ann"), await server.client("bob", "member")
    out: list[str] = []
    server.state.notebooks.end_sessions_of = out.append  # type: ignore[method-assign]
    for person, role in (("bob", "operator"), ("new", "lead"), ("bob", "operator")):
        assert (await ann.post(f"{API}/tokens", json={"person": person, "role": role})).status_code == 201
    assert (await bob.get(f"{API}/me")).json()["role"] == "operator"
    lines = [(one.action, one.target, one.detail["role"]) for one in await server.store.audit.search()]
    assert [line for line in lines[::-1] if line[0].startswith("person")] == [
        ("person.change", "bob", "operator"),
        ("person.add", "new", "lead"),
    ]
    assert out == ["bob", "new"]
    taken = await ann.post(f"{API}/tokens", json={"person": "x", "role": "member"})
    assert taken.status_code == 201
    await server.store.people.change("x", role="member", user="y")
    assert (await ann.post(f"{API}/tokens", json={"person": "y"})).status_code == 400


async def test_last_admin_cannot_be_demoted_by_creating_tokens(server: Server) -> None:
    ann, ben = await server.client("ann"), await server.client("ben")
    asks = [(ann, "ben"), (ben, "ann")]  # each the other, at once
    answers = await asyncio.gather(
        *(who.post(f"{API}/tokens", json={"person": other, "role": "member"}) for who, other in asks)
    )
    assert {403, 409} & {answer.status_code for answer in answers}
    assert "admin" in [one.role for one in await server.store.people.all()]


async def test_concurrent_requests_never_share_one_linux_user(server: Server) -> None:
    ann = await server.client("ann")
    bodies = [(f"p{n}", {"role": "member", "user": "shared"}) for n in range(4)]
    answers = await asyncio.gather(*(ann.put(f"{API}/people/{name}", json=body) for name, body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400]


async def test_limits_failed_sign_ins_but_accepts_valid_tokens(server: Server) -> None:
    ann, guess = await server.client("ann"), server.anonymous(authorization="Bearer hw_guess")
    for _ in range(MAX_FAILURES):
        assert (await guess.get(f"{API}/me")).status_code == 401
    assert (await guess.get(f"{API}/me")).status_code == 429
    assert (await guess.get("/signin?code=guess")).status_code == 429
    assert (await ann.get(f"{API}/me")).status_code == 200
    server.state.clock.now += 301  # type: ignore[attr-defined]
    assert (await guess.get(f"{API}/me")).status_code == 401
    noted = await server.store.audit.search(AuditAsk(action="token.unknown"))
    assert len(noted) == 2  # the first of each window: a guesser must not fill the trail


async def test_failures_of_others_at_the_address_never_delay_a_valid_link_or_token(server: Server) -> None:
    ann = await server.client("ann")
    token = (await ann.post(f"{API}/tokens", json={})).json()["token"]
    link = (await ann.post(f"{API}/signin-links")).json()["url"]
    guess = server.anonymous(authorization="Bearer hw_guess")
    for _ in range(MAX_FAILURES + 5):
        await guess.get(f"{API}/me")
    assert (await guess.get("/signin?code=guess")).status_code == 429
    form = {"person": "ann", "token": token}
    assert (await server.anonymous(origin=URL).post("/signin", data=form)).status_code == 303
    assert (await server.anonymous(origin=URL).get(link)).status_code == 303
    assert (await server.anonymous(origin=URL).get(link)).status_code == 429  # it is used up: a failure as any other


async def test_limits_sign_in_failures_per_account_across_addresses(server: Server) -> None:
    tries = LoginThrottle()
    for number in range(MAX_FAILURES):
        tries.record_failure(0.0, address_key(f"192.0.2.{number}"), "as ann")
    with pytest.raises(TooManyTries):
        tries.check(1.0, address_key("198.51.100.1"), "as ann")
    tries.check(1.0, address_key("198.51.100.1"), "as bob")
    for number in range(MAX_KEYS + 100):
        tries.record_failure(2.0, f"from {number}")
    assert len(tries._failures) == MAX_KEYS
    assert address_key("2001:db8::1") == address_key("2001:db8::2:3") != address_key("2001:db8:0:1::1")


async def test_sign_in_form_checks_person_and_token(server: Server) -> None:
    ann = await server.client("ann")
    token = (await ann.post(f"{API}/tokens", json={})).json()["token"]
    cut = (await ann.post(f"{API}/tokens", json={"scopes": ["read"]})).json()["token"]
    browser = server.anonymous(origin=URL)
    for person, secret, status in (("bob", token, 401), ("ann", "hw_guess", 401), ("ann", cut, 403)):
        answer = await browser.post("/signin", data={"person": person, "token": secret})
        assert (answer.status_code, answer.cookies) == (status, httpx.Cookies()), (person, secret)
    elsewhere = server.anonymous(origin="http://evil.example")
    assert (await elsewhere.post("/signin", data={"person": "ann", "token": token})).status_code == 403
    assert (await browser.post("/signin", data={"person": "ann", "token": token})).status_code == 303
    assert (await browser.get(f"{API}/me")).json()["person"] == "ann"
    refused = await server.store.audit.search(AuditAsk(action="signin", result="refused"))
    assert [line.person for line in refused] == ["ann", "ann", "bob"]
    assert token not in str(refused)


async def test_revoking_a_token_signs_out_the_browsers_that_came_from_it_alone(server: Server) -> None:
    await server.store.people.set_role("ann", "member")
    (stolen, secret), (_, kept) = await server.store.tokens.create("ann"), await server.store.tokens.create("ann")

    async def by_link(owner: httpx.AsyncClient) -> httpx.AsyncClient:
        link = (await owner.post(f"{API}/signin-links")).json()["url"]
        browser = server.anonymous(origin=URL)
        answer = await browser.post("/signin/link", data={"code": link.partition("code=")[2]})
        assert answer.status_code == 303, answer.text
        return browser

    with_token = server.anonymous(origin=URL)
    assert (await with_token.post("/signin", data={"person": "ann", "token": secret})).status_code == 303
    with_link = await by_link(server.anonymous(authorization=f"Bearer {secret}"))
    from_session = await by_link(with_token)
    other = await by_link(server.anonymous(authorization=f"Bearer {kept}"))
    unused = (await with_link.post(f"{API}/signin-links")).json()["url"].partition("code=")[2]
    assert (await other.post(f"/tokens/{stolen.id}/revoke")).status_code == 303
    for browser in (with_token, with_link, from_session):
        assert (await browser.get(f"{API}/me")).status_code == 401
    assert (await other.get(f"{API}/me")).json()["person"] == "ann"
    assert (await server.anonymous(origin=URL).post("/signin/link", data={"code": unused})).status_code == 401


async def test_audit_trail_records_refused_and_failed_requests_with_address(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(builders.job(7, "COMPLETED", user="bob")), "machines": ()}
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    assert (await eve.get(f"{API}/clusters/lab/jobs/7/log")).status_code == 403
    assert (await bob.delete(f"{API}/clusters/lab/jobs/7")).status_code == 409
    assert (await eve.get("/people")).status_code == 403
    page, failed, refused = (await server.store.audit.search())[:3]
    assert (refused.person, refused.action, refused.target, refused.result) == ("eve", "get_log", "lab/7", "refused")
    assert (failed.person, failed.action, failed.target, failed.result) == ("bob", "cancel", "lab/7", "failed")
    assert (page.person, page.result, page.detail["path"]) == ("eve", "refused", "/people")
    assert refused.address == "127.0.0.1"


async def test_audit_trail_supports_paging_filters_and_export(server: Server) -> None:
    ann = await server.client("ann")
    for number in range(7):
        await server.store.audit.record("eve" if number % 2 else "=cmd()", "cancel", "lab", {"job": number})
    seen: list[int] = []
    cursor = ""
    while True:
        page = (await ann.get(f"{API}/audit?action=can&limit=3&cursor={cursor}")).json()
        seen += [line["detail"]["job"] for line in page["lines"]]
        await server.store.audit.record("eve", "cancel", "lab", {"job": 99})  # comes in between: no line is seen twice
        cursor = page["next"]
        if not cursor:
            break
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    assert (await ann.get(f"{API}/audit?cursor=x")).status_code == 400
    lines = (await ann.get(f"{API}/audit/export?action=cancel&person=eve")).text.splitlines()
    assert [json.loads(line)["detail"]["job"] for line in lines] == [1, 3, 5, 99, 99, 99]
    rows = list(csv.DictReader((await ann.get(f"{API}/audit/export?format=csv&action=cancel")).text.splitlines()))
    assert rows[0]["person"] == "'=cmd()"  # no spreadsheet takes it for a formula
    assert json.loads(rows[0]["detail"]) == {"job": 0}


async def test_audit_verification_names_the_first_line_that_does_not_match(server: Server) -> None:
    ann = await server.client("ann")
    for number in range(3):
        await server.store.audit.record("eve", "cancel", "lab", {"job": number})
    export = [json.loads(line) for line in (await ann.get(f"{API}/audit/export")).text.splitlines()]
    last = export[-1]
    known = {"number": last["number"], "hash": last["hash"]}
    intact = {"lines": len(export), **known, "broken_at": 0, "fault": ""}
    assert (await ann.get(f"{API}/audit/verify")).json() == intact
    assert (await ann.get(f"{API}/audit/verify", params=known)).json() == intact
    other = (await ann.get(f"{API}/audit/verify", params=known | {"hash": "f" * 64})).json()
    assert other["broken_at"] == last["number"]
    assert "has another hash than in the export" in other["fault"]
    cut = (await ann.get(f"{API}/audit/verify", params=known | {"number": 99})).json()
    assert cut["fault"] == f"line 99 was removed: the trail ends at line {last['number']}"


async def test_audit_trail_is_append_only(tmp_path: Path) -> None:
    store: Store = await builders.store(tmp_path)
    await store.audit.record("ann", "apply", "lab")
    for statement in ("UPDATE audit SET person = 'bob'", "DELETE FROM audit"):
        with pytest.raises(DBAPIError, match="append-only"):
            async with store.database.write() as db:
                await db.execute(text(statement))
    assert [line.person for line in await store.audit.search()] == ["ann"]
    await store.close()


async def test_token_expires_after_90_days_unless_asked_otherwise(server: Server) -> None:
    ann, now = await server.client("ann"), server.state.clock()
    for body, days in (({}, 90), ({"days": 7}, 7), ({"days": None}, None)):
        made = (await ann.post(f"{API}/tokens", json=body)).json()
        assert made["expires_at"] == (None if days is None else now + days * 86400)
    form = await server.anonymous(**ann.headers).post("/tokens", data={"label": "x"})
    assert form.status_code == 200
    assert [token.expires_at for token in await server.store.tokens.all("ann")][-1] == now + 90 * 86400


async def test_session_ends_when_it_is_not_used(server: Server) -> None:
    ann, clock = await server.client("ann"), server.state.clock
    browser = server.anonymous(origin=URL)
    assert (await browser.get((await ann.post(f"{API}/signin-links")).json()["url"])).status_code == 303

    async def status_after(seconds: float) -> int:
        clock.now += seconds  # type: ignore[attr-defined]
        server.store.sessions._credentials._holders.clear()  # which are kept for a second
        return (await browser.get(f"{API}/me")).status_code

    for _ in range(5):
        assert await status_after(session_validity.SESSION_IDLE_S - 1) == 200
    assert await status_after(session_validity.SESSION_IDLE_S) == 401
    await server.store.sessions.create("ann")
    async with server.store.database.read() as db:
        assert (await db.execute(text("SELECT count(*) FROM sessions"))).scalar() == 1, "ended ones are deleted"


async def test_each_sign_in_by_token_is_logged(server: Server) -> None:
    bob = await server.client("bob", "member")
    with capture_logs() as logged:
        for _ in range(3):
            assert (await bob.get(f"{API}/me")).status_code == 200
        server.state.clock.now += SESSION_IDLE_S  # type: ignore[attr-defined]
        assert (await bob.get(f"{API}/me")).status_code == 200
        for _ in range(3):
            assert (await server.anonymous(authorization="Bearer hw_none").get(f"{API}/me")).status_code == 401
    (token,) = await server.store.tokens.all("bob")
    used = [line for line in logged if line["event"] == "sign-in by token"]
    assert [(line["person"], line["id"], line["scopes"]) for line in used] == [("bob", token.id, "all")] * 2
    assert [line["path"] for line in logged if line["event"] == "unknown token"] == [f"{API}/me"] * 3


async def test_people_see_and_end_their_own_sessions(server: Server) -> None:
    ann, bob = await server.client("ann"), await server.client("bob", "member")
    out: list[str] = []
    server.state.notebooks.end_sessions_of = out.append  # type: ignore[method-assign]
    laptop, phone = (server.anonymous(origin=URL, **{"user-agent": f"Firefox/{n} (Linux)"}) for n in (1, 2))
    for browser in (laptop, phone):
        assert (await browser.get((await bob.post(f"{API}/signin-links")).json()["url"])).status_code == 303
    found = (await laptop.get(f"{API}/sessions")).json()
    assert sorted((one["browser"], one["current"], one["how"]) for one in found) == [
        ("Firefox/1 (Linux)", True, "link"),
        ("Firefox/2 (Linux)", False, "link"),
    ]
    assert {one["person"] for one in (await ann.get(f"{API}/sessions")).json()} == {"bob"}
    other = next(one["id"] for one in found if not one["current"])
    eve = await server.client("eve", "member")
    assert (await eve.get(f"{API}/sessions")).json() == []
    assert (await eve.delete(f"{API}/sessions/{other}")).status_code == 404
    page = (await laptop.get("/tokens")).text
    assert "this browser" in page
    assert page.count("Firefox on Linux") == 4  # a name and a button each
    assert (await laptop.post(f"/sessions/{other}/end")).status_code == 303
    assert (await phone.get(f"{API}/me")).status_code == 401
    assert (await laptop.get(f"{API}/me")).status_code == 200
    assert out[-1] == "bob"
    assert (await server.store.audit.search())[0].action == "session.end"
