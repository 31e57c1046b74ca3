"""A browser session whose sign-in is old can't do what can't be undone, and can't renew itself."""

from __future__ import annotations

import time

import httpx
import pytest

from headway.services.access.role_rights import RECENT_SIGN_IN_S
from headway.store import AuditAsk
from tests.support.api.oidc_provider import Provider, fresh, provider, sign_in_by, use
from tests.support.servers.server_fakes import URL, Server

__all__ = ["fresh", "provider"]  # fixtures
API = "/api/v1"
IRREVERSIBLE = [
    ("POST", f"{API}/clusters/lab/down", {"delete_data": True}),
    ("POST", f"{API}/clusters/lab/keys/rotate", {"what": "munge"}),
    ("POST", f"{API}/clusters/lab/restore", {"path": "/backup", "passphrase": "a long passphrase"}),
    ("POST", f"{API}/server/key/rotate", None),
    ("DELETE", f"{API}/people/bob", None),
    ("PUT", f"{API}/people/bob", {"role": "admin"}),
    ("PUT", f"{API}/people/bob", {"role": "member", "user": "robert"}),
    ("PUT", f"{API}/people/eve", {"role": "viewer"}),
    ("POST", f"{API}/people/bob/enable", None),
    ("POST", f"{API}/tokens", {"label": "x"}),
    ("POST", f"{API}/tokens", {"label": "x", "person": "eve", "role": "member", "scopes": ["submit"]}),
    ("POST", f"{API}/tokens", {"label": "x", "scopes": ["read", "admin"]}),
    ("POST", f"{API}/clusters/lab/datasets/wide/1/remove", {}),
    ("DELETE", f"{API}/sessions/0123456789ab", None),
]


async def browser_of(server: Server, person: str = "ann") -> httpx.AsyncClient:
    """Returns a browser that was signed in by a link now."""
    browser = server.anonymous(origin=URL)
    link = (await (await server.client(person)).post(f"{API}/signin-links")).json()["url"]
    assert (await browser.get(link)).status_code == 303
    return browser


def later(server: Server, seconds: float = RECENT_SIGN_IN_S + 1) -> None:
    server.state.clock.now += seconds  # type: ignore[attr-defined]
    server.store.sessions._credentials._holders.clear()  # which are kept for a second


async def may(browser: httpx.AsyncClient) -> int:
    """Returns the status of a request that a recent sign-in is needed for."""
    return (await browser.post(f"{API}/tokens", json={"label": "x"})).status_code


@pytest.mark.parametrize(("method", "path", "body"), IRREVERSIBLE)
async def test_old_session_is_refused_and_a_token_is_not(server: Server, method: str, path: str, body: object) -> None:
    await server.apply()
    await server.client("bob", "member")
    browser, token = await browser_of(server), await server.client("ann")
    later(server)
    refused = await browser.request(method, path, json=body)
    assert (refused.status_code, refused.json()["kind"]) == (403, "sign_in_again"), refused.text
    assert "15 minutes" in refused.json()["hint"]
    assert (await server.store.audit.search(AuditAsk(person="ann")))[0].result == "refused"
    assert "sign_in_again" not in (await token.request(method, path, json=body)).text


async def test_recent_session_passes_and_what_can_be_undone_needs_no_new_sign_in(server: Server) -> None:
    await server.apply()
    browser = await browser_of(server)
    later(server, RECENT_SIGN_IN_S - 1)
    assert await may(browser) == 201
    later(server, 2)
    assert await may(browser) == 403
    assert (await browser.post(f"{API}/tokens", json={"label": "x", "scopes": ["submit"]})).status_code == 201
    assert (await browser.post(f"{API}/clusters/lab/down", json={})).status_code == 202


async def test_old_session_takes_rights_of_a_person_away_and_gives_none_back(server: Server) -> None:
    browser = await browser_of(server)
    await server.client("bob", "operator")
    later(server)
    less = await browser.put(f"{API}/people/bob", json={"role": "viewer", "user": "bob"})
    assert less.status_code == 200, less.text
    again = await browser.put(f"{API}/people/bob", json={"role": "operator"})
    assert (again.status_code, again.json()["kind"]) == (403, "sign_in_again")
    bob = await server.store.people.get("bob")
    assert bob is not None
    assert bob.role == "viewer"


async def test_old_session_cannot_renew_itself_by_a_sign_in_link(server: Server) -> None:
    browser = await browser_of(server)
    later(server)
    link = (await browser.post(f"{API}/signin-links")).json()["url"]
    renewed = server.anonymous(origin=URL)
    assert (await renewed.get(link)).status_code == 303
    assert await may(renewed) == 403
    assert await may(await browser_of(server)) == 201, "a link that a token made proves who it is"


async def test_page_asks_to_sign_in_again_and_leads_back(server: Server) -> None:
    _, secret = await server.store.tokens.create((await server.store.people.set_role("ann", "admin")).name)  # type: ignore[arg-type]
    await server.client("bob", "member")
    browser = await browser_of(server)
    later(server)
    page = await browser.post("/people/bob/remove", headers={"referer": f"{URL}/people?role=member"})
    assert page.status_code == 403
    assert "Sign in again" in page.text
    assert '<input type="hidden" name="next" value="/people?role=member">' in page.text
    assert await server.store.people.get("bob") is not None
    assert f"within the last {RECENT_SIGN_IN_S // 60:.0f} minutes" in page.text
    form = {"person": "ann", "token": "wrong", "again": "true", "next": "/people?role=member"}
    wrong = await browser.post("/signin", data=form)
    assert wrong.status_code == 401
    assert "Sign in again" in wrong.text
    assert '<input type="hidden" name="next" value="/people?role=member">' in wrong.text, "a second try leads back too"
    form["token"] = secret
    again = await browser.post("/signin", data=form)
    assert (again.status_code, again.headers["location"]) == (303, "/people?role=member")
    assert (await browser.post("/people/bob/remove")).status_code == 303
    assert await server.store.people.get("bob") is None
    htmx = {"hx-request": "true", "hx-current-url": f"{URL}/people"}
    later(server)
    moved = await browser.post("/people/eve/remove", headers=htmx)
    assert moved.headers["hx-redirect"] == "/signin/again?next=/people"


@pytest.mark.parametrize("path", ["https://evil.example", "//evil.example", "/\\evil.example", "", "/a\nb", "/" * 600])
async def test_sign_in_leads_to_no_other_site(server: Server, path: str) -> None:
    _, secret = await server.store.tokens.create((await server.store.people.set_role("ann", "admin")).name)  # type: ignore[arg-type]
    browser = server.anonymous(origin=URL)
    shown = await browser.get("/signin/again", params={"next": path})
    assert 'name="next" value="/"' in shown.text
    done = await browser.post("/signin", data={"person": "ann", "token": secret, "next": path[:500]})
    assert done.headers["location"] == "/"


async def test_provider_is_told_to_ask_for_the_password_and_must_say_so(server: Server, provider: Provider) -> None:
    use(server, provider)
    hours = 3600 * 8
    provider.people("u-9", preferred_username="nina", auth_time=int(time.time()) - hours)
    browser, _ = await sign_in_by(server, provider, "u-9")
    assert (await browser.get(f"{API}/me")).json()["person"] == "nina"
    assert await may(browser) == 403, "the provider's own session is hours old, and it asked for no password"
    left = await browser.get("/signin/oidc", params={"again": "1", "next": "/tokens"})
    asked = httpx.URL(left.headers["location"]).params
    assert (asked["prompt"], asked["max_age"]) == ("login", "0")
    ignored = await browser.get(provider.consent(left.headers["location"], "u-9"))
    assert ignored.status_code == 401
    assert "did not ask for the password again" in ignored.text
    assert await may(browser) == 403
    provider.people("u-9", preferred_username="nina", auth_time=int(time.time()))
    left = await browser.get("/signin/oidc", params={"again": "1", "next": "/tokens"})
    back = await browser.get(provider.consent(left.headers["location"], "u-9"))
    assert back.status_code == 200
    assert 'content="0;url=/tokens"' in back.text
    assert await may(browser) == 201


async def test_provider_without_a_time_of_sign_in_proves_no_recent_one(server: Server, provider: Provider) -> None:
    use(server, provider)
    provider.people("u-10", preferred_username="omar", auth_time="yesterday")
    later(server)
    browser, back = await sign_in_by(server, provider, "u-10")
    assert back.status_code == 200
    assert await may(browser) == 403
