"""A reverse proxy is believed only if the server's settings name it."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from headway.errors import Unreachable
from headway.sdk.client import Client, connect
from tests.support.servers.server_process import Start, guessed_token_addresses, start, state_dir
from tests.support.servers.tls import certificate

__all__ = ["start", "state_dir"]  # fixtures


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cert)


def test_trusted_proxy_headers_set_client_address_and_origin(start: Start, tmp_path: Path) -> None:
    server = start(HEADWAY_TRUSTED_PROXIES="127.0.0.1", HEADWAY_PUBLIC_URL="https://headway.example.org")
    said = {"authorization": "Bearer hw_guess", "x-forwarded-for": "198.51.100.7, 203.0.113.9"}
    assert httpx.get(f"{server.url}/api/v1/me", headers=said, timeout=60).status_code == 401
    assert guessed_token_addresses(tmp_path / "state") == [
        "203.0.113.9"
    ]  # what the proxy saw, not what the client told the proxy
    with connect() as client:  # from this machine, not through the proxy
        link = client.tokens.sign_in_link().url
    assert link.startswith("https://headway.example.org/signin?code=")
    seen = {"host": "headway.example.org", "x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
    answer = httpx.get(f"{server.url}/signin?{link.partition('?')[2]}", headers=seen, timeout=60)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303
    assert cookie.startswith("__Host-headway_")
    assert "; secure" in cookie.lower()
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    session = {**seen, "cookie": cookie.partition(";")[0]}
    ask = f"{server.url}/api/v1/signin-links"
    for origin, status in (
        ("https://headway.example.org", 201), ("http://headway.example.org", 403), ("https://evil.example", 403),
    ):  # fmt: skip
        assert httpx.post(ask, headers={**session, "origin": origin}, timeout=60).status_code == status, origin
    assert (
        httpx.get(f"{server.url}/api/v1/me", headers={**session, "host": "evil.example"}, timeout=60).status_code == 400
    )


def test_server_serves_tls_and_ignores_untrusted_proxy_headers(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path, "localhost")
    server = start(HEADWAY_TLS_CERT=str(cert), HEADWAY_TLS_KEY=str(key))
    assert server.url.startswith("https://localhost:")
    with connect() as client:  # the client trusts the certificate of this machine's server
        assert client.me().role == "admin"
    # It knows no proxy, so the clients' addresses are unknown.
    said = {"authorization": "Bearer hw_guess", "x-forwarded-for": "203.0.113.9"}
    assert httpx.get(f"{server.url}/api/v1/me", headers=said, verify=trusting(cert), timeout=60).status_code == 401
    assert guessed_token_addresses(tmp_path / "state") == ["127.0.0.1"]
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "elsewhere"))
    with Client(server.url, "hw_x") as client, pytest.raises(Unreachable, match="can't be verified") as caught:
        client.me()
    assert "HEADWAY_CA_FILE" in caught.value.hint
    monkeypatch.setenv("HEADWAY_CA_FILE", str(cert))
    with Client(server.url, "hw_x") as client, pytest.raises(Exception, match="unknown or has expired"):
        client.me()
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.url.replace("https", "http"))
