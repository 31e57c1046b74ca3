"""A logout token of the provider ends what came from its session, and no other token does."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from headway.api.auth.oidc_logout import EVENT, LOGOUT_PATH
from headway.services.login_throttle import MAX_FAILURES
from headway.store import AuditAsk
from tests.support.api.oidc_provider import Provider, fresh, logout_token, provider, sign_in_by, use
from tests.support.servers.server_fakes import URL, Server

__all__ = ["fresh", "provider"]  # fixtures
API = "/api/v1"


async def signed_in(server: Server, provider: Provider, name: str, sid: str | None = None) -> httpx.AsyncClient:
    claims: dict[str, Any] = {"preferred_username": name, "auth_time": int(time.time())}
    provider.people(f"u-{name}", **claims, **({"sid": sid} if sid else {}))
    browser, back = await sign_in_by(server, provider, f"u-{name}")
    assert back.status_code == 200, back.text
    return browser


async def told(server: Server, token: str) -> httpx.Response:
    return await server.anonymous().post(LOGOUT_PATH, data={"logout_token": token})


async def is_in(client: httpx.AsyncClient) -> bool:
    return (await client.get(f"{API}/me")).status_code == 200


async def test_logout_of_a_session_ends_it_with_its_tokens_and_links(server: Server, provider: Provider) -> None:
    use(server, provider)
    ended: list[str] = []
    server.state.notebooks.end_sessions_of = ended.append  # type: ignore[method-assign]
    laptop = await signed_in(server, provider, "ida", "s-1")
    secret = (await laptop.post(f"{API}/tokens", json={"label": "ci"})).json()["token"]
    token = server.anonymous(authorization=f"Bearer {secret}")
    second = (await token.post(f"{API}/tokens", json={"label": "made by it"})).json()["token"]
    link = (await laptop.post(f"{API}/signin-links")).json()["url"]
    other_link = (await token.post(f"{API}/signin-links")).json()["url"]
    tablet = server.anonymous(origin=URL)
    assert (await tablet.get(other_link)).status_code == 303
    phone = await signed_in(server, provider, "ida", "s-2")
    local = server.anonymous(authorization=f"Bearer {(await server.store.tokens.create('ida'))[1]}")
    answer = await told(server, logout_token(provider, sub="u-ida", sid="s-1"))
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    for client in (laptop, token, server.anonymous(authorization=f"Bearer {second}"), tablet):
        assert not await is_in(client)
    assert (await server.anonymous(origin=URL).get(link)).status_code == 401
    assert await is_in(phone), "another session of the provider"
    assert await is_in(local), "a token that came from no sign-in by the provider"
    assert ended == ["ida"]
    line = (await server.store.audit.search(AuditAsk(action="signout")))[0]
    assert (line.target, line.detail) == ("ida", {"by": "sign-in provider", "ended": 4})


async def test_logout_of_a_person_ends_all_their_sessions_and_no_others(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida, again = await signed_in(server, provider, "ida", "s-1"), await signed_in(server, provider, "ida")
    bea = await signed_in(server, provider, "bea", "s-9")
    assert (await told(server, logout_token(provider, sub="u-ida"))).status_code == 200
    assert not await is_in(ida)
    assert not await is_in(again)
    assert await is_in(bea)
    assert (await told(server, logout_token(provider, sub="u-unknown"))).status_code == 200
    assert (await told(server, logout_token(provider, sid="s-9"))).status_code == 200
    assert not await is_in(bea)


async def test_session_whose_name_is_unknown_ends_with_each_of_its_person(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida")
    assert (await told(server, logout_token(provider, sid="s-1"))).status_code == 200
    assert await is_in(ida)
    assert (await told(server, logout_token(provider, sub="u-ida", sid="s-1"))).status_code == 200
    assert not await is_in(ida)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nonce": "n"}, "it is an ID token"),
        ({"events": None}, "events"),
        ({"events": {"http://schemas.openid.net/event/other": {}}}, "its events lack"),
        ({"events": {EVENT: True}}, "its events lack"),
        ({"events": [EVENT]}, "its events lack"),
        ({"sub": None}, "neither a person"),
        ({"sub": 7}, "'sub'"),
        ({"sub": ""}, "neither a person"),
        ({"sid": ["s-1"]}, "neither a person"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"aud": "another client"}, "aud"),
        ({"aud": None}, "aud"),
        ({"iat": None}, "iat"),
        ({"iat": 1_700_000_000}, "was made more than"),
        ({"iat": 4_000_000_000}, "in the future"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"jti": None}, "jti"),
        ({"jti": 7}, "jti"),
        ({"typ": "at+jwt"}, "its type is"),
    ],
)
async def test_token_that_is_no_logout_token_ends_nothing(
    server: Server, provider: Provider, changes: dict[str, Any], words: str
) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida", "s-1")
    answer = await told(server, logout_token(provider, **{"sub": "u-ida", **changes}))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), answer.text
    assert words in answer.json()["error_description"]
    assert await is_in(ida)


async def test_forged_logout_token_ends_nothing(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida", "s-1")
    good = logout_token(provider, sub="u-ida")
    head, body, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"logout+jwt"}').decode().rstrip("=")
    claims = jwt.decode(good, RSAKey.import_key(provider.key)).claims
    altered = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "u-bea"}).encode()).decode().rstrip("=")
    public = RSAKey.import_key(provider.key).as_pem(private=False)
    confused = jwt.encode({"alg": "HS256", "typ": "logout+jwt"}, claims, OctKey.import_key(public.replace(b"-", b"_")))
    for forged in (
        logout_token(provider, sub="u-ida", key=RSAKey.generate_key()),
        f"{none}.{body}.",
        f"{none}.{body}.{signature}",
        f"{head}.{altered}.{signature}",
        f"{head}.{body}.",
        confused,
        "",
        "a.b.c",
    ):
        assert (await told(server, forged)).status_code == 400, forged
    assert await is_in(ida)
    refused = await server.store.audit.search(AuditAsk(action="signin"))
    assert (refused[0].result, refused[0].detail["how"]) == ("refused", "provider logout")


async def test_logout_token_works_once(server: Server, provider: Provider) -> None:
    use(server, provider)
    await signed_in(server, provider, "ida", "s-1")
    token = logout_token(provider, sub="u-ida")
    assert (await told(server, token)).status_code == 200
    again = await signed_in(server, provider, "ida", "s-2")
    replay = await told(server, token)
    assert (replay.status_code, "used before" in replay.json()["error_description"]) == (400, True)
    assert await is_in(again)


async def test_forged_logout_tokens_flood_neither_server_nor_provider(server: Server, provider: Provider) -> None:
    use(server, provider)
    ida = await signed_in(server, provider, "ida", "s-1")
    read = 0
    keys = sign_in_provider(server)
    load = keys._get

    async def counted(*args: Any) -> Any:
        nonlocal read
        read += 1
        return await load(*args)

    keys._get = counted  # type: ignore[method-assign]
    answers = [(await told(server, "a.b.c")).status_code for _ in range(MAX_FAILURES + 1)]
    assert answers == [400] * MAX_FAILURES + [429]
    assert read <= 1
    assert (await told(server, logout_token(provider, sub="u-ida"))).status_code == 200, "a valid one is not refused"
    assert not await is_in(ida)


def sign_in_provider(server: Server) -> Any:
    from headway.api.auth.sign_in import provider_of

    return provider_of(server.state)


async def test_server_without_a_provider_has_no_logout(server: Server) -> None:
    assert (await told(server, "a.b.c")).status_code == 400
