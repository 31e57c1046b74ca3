"""Forged, replayed and foreign answers and logout tokens of an OpenID provider neither sign a person in or out nor cause a
flood of requests."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from headway.api.auth.oidc import OidcProvider as OidcClient
from headway.api.auth.oidc_logout import EVENT
from headway.errors import NotSignedIn, Unreachable
from headway.services.login_throttle import MAX_FAILURES
from headway.services.server_settings import Oidc
from headway.store import AuditAsk
from tests.support.api.oidc_provider import (
    CLIENT_ID,
    Provider,
    fresh,
    is_signed_in,
    logout_token,
    provider,
    send_logout,
    sign_in_by,
    signed_in,
    use,
)
from tests.support.servers.server_fakes import Server

__all__ = ["fresh", "provider"]  # fixtures
API = "/api/v1"


def sign_in_provider(server: Server) -> Any:
    from headway.api.auth.sign_in import provider_of

    return provider_of(server.state)


async def test_bad_tokens_from_the_address_never_delay_a_sign_in_by_the_provider(
    server: Server, provider: Provider
) -> None:
    use(server, provider)
    guess = server.anonymous(authorization="Bearer hw_guess")
    for _ in range(MAX_FAILURES + 5):
        await guess.get("/api/v1/me")
    browser, back = await sign_in_by(server, provider, "u-nat")
    assert back.status_code == 200, back.text
    assert (await browser.get("/api/v1/me")).json()["role"] == "viewer"
    forged = server.anonymous(cookie=f"headway_test_oidc={'x' * 43}")
    assert (await forged.get(f"/signin/oidc/back?state={'x' * 43}&code=1")).status_code == 429


async def test_oidc_sign_in_does_not_take_over_existing_names(server: Server, provider: Provider) -> None:
    use(server, provider, user_claim="preferred_username")
    await server.client("ann", "admin")
    provider.people("u-2", preferred_username="ann")
    browser, back = await sign_in_by(server, provider, "u-2")
    assert back.status_code == 403
    assert (await browser.get("/api/v1/me")).status_code == 401
    use(server, provider)
    browser, _ = await sign_in_by(server, provider, "u-2")
    found = (await browser.get("/api/v1/me")).json()
    assert (found["person"][:4], found["role"]) == ("ann-", "viewer")
    assert re.fullmatch(r"ann-[0-9a-f]{8}", found["person"]), "of a name that a path can hold, whatever its sub is"


async def test_oidc_refuses_foreign_replayed_or_late_responses(server: Server, provider: Provider) -> None:
    use(server, provider)
    provider.people("u-4", preferred_username="mallory")
    browser = server.anonymous()
    back = provider.consent((await browser.get("/signin/oidc")).headers["location"], "u-4")
    other = server.anonymous()  # a victim who is sent the attacker's answer
    assert (await other.get(back)).status_code == 401
    assert (await browser.get(back)).status_code == 200
    assert (await browser.get(back)).status_code == 401  # once
    back = provider.consent((await browser.get("/signin/oidc")).headers["location"], "u-4")
    assert (await browser.get(back.replace("state=", "state=x"))).status_code == 401
    provider.spoil = "nonce"
    _, replayed = await sign_in_by(server, provider, "u-4")
    assert replayed.status_code == 401
    provider.spoil = ""
    late = server.anonymous()
    back = provider.consent((await late.get("/signin/oidc")).headers["location"], "u-4")
    server.state.clock.now += 601  # type: ignore[attr-defined]
    assert (await late.get(back)).status_code == 401


async def test_oidc_code_is_useless_without_its_pkce_verifier(server: Server, provider: Provider) -> None:
    use(server, provider)
    provider.people("u-5", preferred_username="eve")
    thief, victim = server.anonymous(), server.anonymous()
    stolen = provider.consent((await victim.get("/signin/oidc")).headers["location"], "u-5")
    mine = parse_qs(urlsplit((await thief.get("/signin/oidc")).headers["location"]).query)["state"][0]
    code = parse_qs(urlsplit(stolen).query)["code"][0]
    answer = await thief.get("/signin/oidc/back", params={"code": code, "state": mine})
    assert answer.status_code == 401


@pytest.mark.parametrize("answers", [True, False])
async def test_tokens_with_unknown_keys_do_not_flood_the_provider(answers: bool) -> None:
    issuer = "https://login.example.org"
    about = dict.fromkeys(("authorization_endpoint", "token_endpoint"), f"{issuer}/x")
    keys = OidcClient(Oidc(issuer, "headway", ""))
    reads = 0

    async def read(url: str, access_token: str = "") -> dict[str, object]:
        nonlocal reads
        if url != f"{issuer}/keys":
            return {**about, "issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        reads += 1
        await asyncio.sleep(0)
        if not answers:
            raise Unreachable("no answer")
        return {"keys": [ECKey.generate_key(parameters={"kid": "known"}).as_dict(private=False)]}

    keys._get = read  # type: ignore[method-assign]
    forged = jwt.encode({"alg": "HS256", "kid": "unknown"}, {}, OctKey.generate_key())
    found = await asyncio.gather(*(keys.decode(forged) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, Exception) for one in found)
    assert reads == 1


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
    answer = await send_logout(server, logout_token(provider, **{"sub": "u-ida", **changes}))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), answer.text
    assert words in answer.json()["error_description"]
    assert await is_signed_in(ida)


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
        assert (await send_logout(server, forged)).status_code == 400, forged
    assert await is_signed_in(ida)
    refused = await server.store.audit.search(AuditAsk(action="signin"))
    assert (refused[0].result, refused[0].detail["how"]) == ("refused", "provider logout")


async def test_logout_token_works_once(server: Server, provider: Provider) -> None:
    use(server, provider)
    await signed_in(server, provider, "ida", "s-1")
    token = logout_token(provider, sub="u-ida")
    assert (await send_logout(server, token)).status_code == 200
    again = await signed_in(server, provider, "ida", "s-2")
    replay = await send_logout(server, token)
    assert (replay.status_code, "used before" in replay.json()["error_description"]) == (400, True)
    assert await is_signed_in(again)


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
    answers = [(await send_logout(server, "a.b.c")).status_code for _ in range(MAX_FAILURES + 1)]
    assert answers == [400] * MAX_FAILURES + [429]
    assert read <= 1
    assert (await send_logout(server, logout_token(provider, sub="u-ida"))).status_code == 200, (
        "a valid one is not refused"
    )
    assert not await is_signed_in(ida)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1_000_000_000}, {"exp": None}, {"iat": 9_000_000_000}, {"aud": "another"}, {"aud": ["headway", "another"]},
        {"aud": None}, {"iss": "https://evil.example"}, {"nonce": "another"}, {"sub": ""}, {"alg": "HS256"}, {"key": "own"},
    ],
    ids=str,
)  # fmt: skip
async def test_id_token_that_is_old_foreign_or_not_of_the_provider_is_refused(
    provider: Provider, changes: dict[str, Any]
) -> None:
    client = OidcClient(Oidc(provider.issuer, CLIENT_ID, "secret"))
    base = {"nonce": "n", "sub": "u-1", "typ": "JWT"}
    assert (await client._claims(logout_token(provider, **base), "n"))["sub"] == "u-1"
    if changes.get("key"):  # a key that the token brings along counts for nothing
        changes = {"key": RSAKey.generate_key(2048)}
    if changes.get("alg"):
        changes = {**changes, "key": OctKey.import_key(provider.key["n"])}
    with pytest.raises(NotSignedIn):
        await client._claims(logout_token(provider, **{**base, **changes}), "n")


async def test_tokens_of_the_provider_reach_neither_the_browser_nor_the_database(
    server: Server, provider: Provider
) -> None:
    use(server, provider)
    provider.people("u-77", preferred_username="tess")
    browser, back = await sign_in_by(server, provider, "u-77")
    assert (await browser.get("/api/v1/me")).json()["person"] == "tess"
    sent = back.text + str(back.headers) + str(dict(browser.cookies))
    stored = b"".join(path.read_bytes() for path in server.state.settings.state_dir.glob("headway.db*"))
    assert b"tess" in stored
    for start in ("eyJ", "access_token", "id_token"):  # how each signed token begins
        assert start not in sent
        assert start.encode() not in stored


async def test_link_on_another_site_does_not_sign_in_by_the_provider(server: Server, provider: Provider) -> None:
    """A person with a session at the provider would be signed in without having asked for it."""
    use(server, provider)
    for site in ("cross-site", "same-site"):
        browser = server.anonymous()
        answer = await browser.get("/signin/oidc?next=/jobs", headers={"sec-fetch-site": site})
        assert (answer.status_code, dict(browser.cookies)) == (200, {}), site
        assert 'href="/signin/oidc"' in answer.text
    assert (await server.anonymous().get("/signin/oidc", headers={"sec-fetch-site": "same-origin"})).status_code == 303
