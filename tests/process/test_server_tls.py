"""A real server applies the TLS, reverse proxy and address settings of its environment."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from headway.api.auth.sessions import flow_cookie
from headway.errors import Refused, Unreachable
from headway.sdk.client import Client, connect
from headway.server import listen_settings
from headway.server.notebook_proxy import origin_of
from tests.support.server_fakes import Server
from tests.support.server_process import Start, guessed_token_addresses, start, state_dir
from tests.support.tls import certificate

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


def test_listen_settings_are_read_from_environment(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "hw.example.org", "10.0.0.9")
    (tmp_path / "secret").write_text("s3cret\n")
    found = listen_settings.read({
        "HEADWAY_PUBLIC_URL": "https://Headway.example.org:8443/",
        "HEADWAY_TLS_CERT": str(cert), "HEADWAY_TLS_KEY": str(key),
        "HEADWAY_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/24",
        "HEADWAY_OIDC_ISSUER": "https://id.example.org/realm", "HEADWAY_OIDC_CLIENT_ID": "headway",
        "HEADWAY_OIDC_CLIENT_SECRET_FILE": str(tmp_path / "secret"), "HEADWAY_OIDC_ROLE_CLAIM": "groups",
        "HEADWAY_OIDC_ROLES": "cn=hpc=admin,staff=member",
    })  # fmt: skip
    assert found.url == "https://headway.example.org:8443"
    assert found.hosts("0.0.0.0") == (
        "10.0.0.9", "127.0.0.1", "[::1]", "headway.example.org", "hw.example.org", "localhost"
    )  # fmt: skip
    assert found.proxies == ("127.0.0.1", "10.0.0.0/24")
    assert found.oidc
    assert (found.oidc.client_secret, found.oidc.roles) == ("s3cret", (("cn=hpc", "admin"), ("staff", "member")))
    assert "s3cret" not in repr(found)
    assert listen_settings.read({}) == listen_settings.ListenSettings()
    assert listen_settings.read({}).hosts("127.0.0.1") == ("127.0.0.1", "[::1]", "localhost")
    assert listen_settings.read({}).hosts("0.0.0.0") == ()
    assert origin_of("127.0.0.1", 7879, "https://hw.example.org:7878") == "https://hw.example.org:7879"
    assert origin_of("127.0.0.1", 7879, "http://127.0.0.1:7878") == "http://*.notebooks.localhost:7879"
    assert origin_of("10.0.0.9", 7879, "http://10.0.0.9:7878") == "http://10.0.0.9:7879"
    books = "HEADWAY_NOTEBOOK_URL"
    assert listen_settings.origin({books: "https://*.Books.example.org/"}, books) == "https://*.books.example.org"
    for text in ("https://*", "https://a*.example.org", "https://a.*.example.org", "https://*.*.example.org"):
        with pytest.raises(Refused, match="not an origin"):
            listen_settings.origin({books: text}, books)


def test_refuses_invalid_listen_settings(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    files = {"HEADWAY_TLS_CERT": str(cert), "HEADWAY_TLS_KEY": str(key)}
    provider = {"HEADWAY_OIDC_ISSUER": "https://id.example.org", "HEADWAY_OIDC_CLIENT_ID": "x"}
    for env, words in (
        (files, "has no host name"),
        ({"HEADWAY_TLS_CERT": str(cert)}, "without its key"),
        ({**files, "HEADWAY_TLS_KEY": str(cert)}, "can't be used"),
        ({**files, "HEADWAY_TLS_CERT": "/nowhere"}, "No such file"),
        ({"HEADWAY_PUBLIC_URL": "headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://ann@headway.example.org"}, "not an origin"),
        ({"HEADWAY_PUBLIC_URL": "https://*.example.org"}, "not an origin"),
        ({"HEADWAY_TRUSTED_PROXIES": "*"}, "has an invalid address"),
        ({"HEADWAY_OIDC_ISSUER": "http://id.example.org"}, "not an https address"),
        ({"HEADWAY_OIDC_ISSUER": "https://id.example.org"}, "HEADWAY_OIDC_CLIENT_ID"),
        ({**provider, "HEADWAY_OIDC_ROLES": "staff=boss"}, "invalid entry"),
        ({**provider, "HEADWAY_OIDC_CLIENT_SECRET_FILE": "/nowhere"}, "can't be read"),
    ):
        with pytest.raises(Refused, match=words):
            listen_settings.read(env)


def test_oidc_flow_cookie_has_no_host_prefix(server: Server) -> None:
    object.__setattr__(server.state.settings, "cookie", "__Host-headway_x")
    assert flow_cookie(server.state) == "headway_x_oidc"
