"""An OpenID provider on loopback that checks requests as real ones do, and what a person does there."""

from __future__ import annotations

import base64
import hashlib
import io
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import flask
import httpx
import oidc_provider_mock
import pytest
from werkzeug.serving import make_server

from headway.api.auth import sign_in
from headway.api.auth.oidc_logout import EVENT, LOGOUT_PATH
from headway.services.server_settings import Oidc
from tests.support.servers.server_fakes import URL, Server

CLIENT_ID = "headway"


@dataclass
class Provider:
    """The provider's address, and what it was asked: it holds the client to PKCE, as real ones do."""

    issuer: str
    asked: list[dict[str, str]] = field(default_factory=list)
    challenges: dict[str, str] = field(default_factory=dict)  # by code
    spoil: str = ""  # what goes wrong: "nonce"
    key: dict[str, Any] = field(default_factory=dict)  # its private key, as JWK

    def people(self, subject: str, **claims: Any) -> None:
        answer = httpx.put(f"{self.issuer}/users/{subject}", json=claims)
        assert answer.is_success, answer.text

    def consent(self, url: str, subject: str) -> str:
        """What a person does there: says who they are and agrees. The address that the browser is sent to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.asked.append(asked)
        if self.spoil == "nonce":
            url = url.replace(asked["nonce"], "another")
        answer = httpx.post(url, data={"sub": subject}, follow_redirects=False)
        back = answer.headers["location"]
        code = parse_qs(urlsplit(back).query).get("code", [""])[0]
        self.challenges[code] = asked["code_challenge"]
        return str(back)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    inner = oidc_provider_mock.app(require_nonce=True)
    made: list[Provider] = []

    def app(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] == "/oauth2/token":
            size = int(environ.get("CONTENT_LENGTH") or 0)
            body = environ["wsgi.input"].read(size)
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            hashed = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if made[0].challenges.get(form.get("code", "")) != base64.urlsafe_b64encode(hashed).decode().rstrip("="):
                start("400 Bad Request", [("content-type", "application/json")])
                return [b'{"error": "invalid_grant"}']
            environ["wsgi.input"] = io.BytesIO(body)
        return inner(environ, start)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    with inner.test_request_context("/"):
        inner.preprocess_request()
        key = flask.g.oidc_provider_mock_storage.jwk.as_dict(is_private=True)
    made.append(Provider(f"http://127.0.0.1:{server.server_port}", key=key))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made[0]
    server.shutdown()
    thread.join(60)


@pytest.fixture(autouse=True)
def fresh(provider: Provider) -> None:
    sign_in._new_provider.cache_clear()
    provider.spoil = ""


def use(server: Server, provider: Provider, **more: Any) -> None:
    oidc = Oidc(provider.issuer, CLIENT_ID, "a secret of the client's", **more)
    server.state.settings = replace(server.state.settings, oidc=oidc)
    server.state.clusters._settings = server.state.settings


async def sign_in_by(server: Server, provider: Provider, subject: str) -> tuple[httpx.AsyncClient, httpx.Response]:
    browser = server.anonymous(origin=URL)
    left = await browser.get("/signin/oidc")
    assert left.status_code == 303, left.text
    return browser, await browser.get(provider.consent(left.headers["location"], subject))


def logout_token(
    provider: Provider, *, key: Any = None, alg: str = "RS256", typ: str = "logout+jwt", **changes: Any
) -> str:
    """Returns a logout token that the provider signs; `changes` replace its claims, None removes one."""
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": provider.issuer,
        "aud": CLIENT_ID,
        "iat": now,
        "exp": now + 120,
        "jti": secrets.token_hex(8),
        "events": {EVENT: {}},
        **changes,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": alg, "typ": typ}, claims, key or RSAKey.import_key(provider.key), algorithms=[alg])


async def signed_in(server: Server, provider: Provider, name: str, sid: str | None = None) -> httpx.AsyncClient:
    """Returns the browser of a person whom the provider has signed in."""
    claims: dict[str, Any] = {"preferred_username": name, "auth_time": int(time.time())}
    provider.people(f"u-{name}", **claims, **({"sid": sid} if sid else {}))
    browser, back = await sign_in_by(server, provider, f"u-{name}")
    assert back.status_code == 200, back.text
    return browser


async def send_logout(server: Server, token: str) -> httpx.Response:
    """Sends a logout token to the server."""
    return await server.anonymous().post(LOGOUT_PATH, data={"logout_token": token})


async def is_signed_in(client: httpx.AsyncClient) -> bool:
    """Returns whether the server knows the client's person."""
    return (await client.get("/api/v1/me")).status_code == 200
