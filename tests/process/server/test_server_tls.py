"""A real server process over TLS: its own certificate that clients pin, renewed files, and what is refused."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import h11
import httpx
import pytest
from starlette.responses import Response

from headway.api.app import security_headers
from headway.api.auth.sign_in import set_flow_cookie
from headway.cli.main import main
from headway.domain.access.role import Role
from headway.errors import Refused, Unreachable
from headway.sdk.async_client import AsyncClient
from headway.sdk.client import Client, connect
from headway.sdk.server_address import write_client_file
from headway.sdk.tls_trust import presented_fingerprint
from headway.server.notebook_proxy import NotebookProxy
from tests.support.paths import ROOT
from tests.support.servers.server_fakes import Server, document
from tests.support.servers.server_process import Start, start, state_dir
from tests.support.servers.tls import certificate
from tests.support.waiting import wait_until

__all__ = ["start", "state_dir"]  # fixtures

OTHER = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


@pytest.fixture
def elsewhere(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after which this process is a client on a machine without this server."""

    def leave() -> None:
        monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "another machine"))

    return leave


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Yields (address, what clients sent) of a TLS program with a certificate of its own, as an attacker has."""
    files = tmp_path / "attacker"
    files.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(files, "localhost"))
    got: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    got.append(connection.recv(4096))
            except OSError:
                plain.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}", got
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_client_pins_the_certificate_that_the_server_made(
    start: Start, elsewhere: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(HEADWAY_TLS_SELF_SIGNED="1")
    assert server.url.startswith("https://127.0.0.1:")
    with connect() as client:  # the commands of this machine need no setting
        assert client.server().fingerprint == server.fingerprint != ""
        token = client._connection._token
        operation = client.clusters.apply(document())
        (Path(os.environ["HEADWAY_STATE"]) / "go").touch()
        assert [event.text for event in client.operations.events(operation.id)] == ["are made", "are up"]
    elsewhere()
    with Client(server.url, token, fingerprint=server.fingerprint) as client:
        assert client.me().role == "admin"
    with Client(server.url, token) as client, pytest.raises(Unreachable, match="can't be verified"):
        client.me()

    async def use() -> str:
        async with AsyncClient(server.url, token, fingerprint=server.fingerprint) as client:
            return (await client.me()).role

    assert asyncio.run(use()) == "admin"
    monkeypatch.setenv("HEADWAY_URL", server.url)
    monkeypatch.setenv("HEADWAY_TOKEN", token)
    monkeypatch.setenv("HEADWAY_FINGERPRINT", f"{OTHER}, {server.fingerprint}")
    with connect() as client:
        assert client.me().role == "admin"


def test_changed_certificate_is_refused_before_anything_is_sent(
    start: Start, elsewhere: Callable[[], None], listener: tuple[str, list[bytes]]
) -> None:
    server = start(HEADWAY_TLS_SELF_SIGNED="1")
    elsewhere()
    with Client(server.url, "hw_secret", fingerprint=OTHER) as client, pytest.raises(Refused) as caught:
        client.me()
    assert f"{server.fingerprint} instead of {OTHER}" in caught.value.message
    assert f"headway login {server.url} --fingerprint {server.fingerprint}" in caught.value.hint
    address, got = listener
    with Client(address, "hw_secret", fingerprint=server.fingerprint) as client:
        for _ in range(2):
            with pytest.raises(Refused, match="another certificate than the pinned one"):
                client.me()
    assert b"".join(got) == b""
    with pytest.raises(Refused, match="without TLS"), Client("http://127.0.0.1:9", "t", fingerprint=OTHER) as client:
        client.me()


def test_login_stores_the_pin_and_refuses_plain_http(
    start: Start,
    elsewhere: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    server = start(HEADWAY_TLS_SELF_SIGNED="1")
    with connect() as client:
        token = client._connection._token
    elsewhere()
    monkeypatch.setenv("HEADWAY_TOKEN", token)
    assert main(["login", server.url]) != 0
    assert f"--fingerprint {server.fingerprint}" in capsys.readouterr().err, "it is shown, to be compared"
    assert main(["login", server.url, "--fingerprint", OTHER]) != 0
    assert main(["login", "http://192.0.2.1:7878"]) != 0
    assert "without TLS" in capsys.readouterr().err
    assert not (tmp_path / "config/headway/client.json").exists()
    assert main(["login", server.url, "--fingerprint", server.fingerprint]) == 0
    assert "(admin)" in capsys.readouterr().out
    assert (tmp_path / "config/headway/client.json").stat().st_mode & 0o777 == 0o600
    monkeypatch.delenv("HEADWAY_TOKEN")
    with connect() as client:
        assert client.url == server.url
        assert client.me().role == "admin"


def test_login_without_a_pin_replaces_the_old_one(
    start: Start,
    elsewhere: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    cert, key = certificate(tmp_path, "localhost")
    server = start(HEADWAY_TLS_CERT=str(cert), HEADWAY_TLS_KEY=str(key))
    with connect() as client:
        token = client._connection._token
    elsewhere()
    write_client_file(server.url, token, OTHER)  # of the certificate that the server made, before it got this one
    monkeypatch.setenv("HEADWAY_TOKEN", token)
    monkeypatch.setenv("HEADWAY_CA_FILE", str(cert))
    assert main(["login", server.url]) == 0
    assert f"the certificate {OTHER} is no longer pinned" in capsys.readouterr().err
    monkeypatch.delenv("HEADWAY_TOKEN")
    with connect() as client:
        assert client.me().role == "admin"


def test_renewed_certificate_is_used_without_a_restart(
    start: Start, elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    live = tmp_path / "live"  # as certbot does: a link that is moved to the new files
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        certificate(tmp_path / name, "localhost")
    live.symlink_to(tmp_path / "1")
    server = start(HEADWAY_TLS_CERT=str(live / "cert.pem"), HEADWAY_TLS_KEY=str(live / "key.pem"))
    before, _ = presented_fingerprint(server.url)
    (tmp_path / "next").symlink_to(tmp_path / "2")
    (tmp_path / "next").replace(live)
    wait_until(lambda: presented_fingerprint(server.url)[0] != before, "the renewed certificate", lambda: "")
    with connect() as client:  # this machine's commands trust the renewed file
        assert client.me().role == "admin"
    elsewhere()
    renewed, fault = presented_fingerprint(server.url)
    assert renewed != before
    assert fault


def test_plain_http_gets_no_answer_and_cookies_are_secure(start: Start) -> None:
    server = start(HEADWAY_TLS_SELF_SIGNED="1")
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.url.replace("https", "http"))
    with connect() as client:
        link = client.tokens.sign_in_link().url
    cookie = httpx.get(link, verify=False, timeout=60).headers["set-cookie"]
    assert cookie.startswith("__Host-headway_")
    assert "; secure" in cookie.lower()


def test_notebooks_are_served_by_the_same_certificate(start: Start, state_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(HEADWAY_TLS_SELF_SIGNED="1", HEADWAY_NOTEBOOK_PORT=str(port))
    address = f"https://127.0.0.1:{port}"
    assert presented_fingerprint(address)[0] == server.fingerprint
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{port}/open?code=x")
    answer = httpx.get(f"{address}/open?code=x", verify=False, timeout=60)
    assert answer.status_code == 403
    assert urlsplit(server.url).hostname == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_server_without_tls_refuses_other_addresses_than_loopback(state_dir: Path, host: str) -> None:
    env = {**os.environ, "HEADWAY_HOST": host, "HEADWAY_PORT": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "headway.server"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert f"listen on {host} (HEADWAY_HOST) without TLS" in ended.stderr
    assert "--tls-self-signed" in ended.stderr
    assert "--insecure" in ended.stderr


def test_browsers_keep_to_https_only_for_certificates_of_an_authority() -> None:
    name = "strict-transport-security"
    assert security_headers("https://hw.example.org")[name] == "max-age=31536000; includeSubDomains"
    for url, own in (
        ("https://hw.example.org", True), ("https://hw.example.org:7878", False), ("http://hw.example.org", False)
    ):  # fmt: skip
        assert name not in security_headers(url, own_certificate=own)


async def test_every_cookie_has_a_prefix_and_is_secure_with_tls(server: Server) -> None:
    for name, value in (
        ("url", "https://127.0.0.1"),
        ("cookie", "__Host-headway_x"),
        ("notebooks", "https://127.0.0.1:1"),
    ):
        object.__setattr__(server.state.settings, name, value)
    browser = await server.client("ann")
    browser.headers["origin"] = "https://127.0.0.1"
    await server.store.people.set_role("bob", Role.MEMBER)
    flash = (await browser.post("/people/bob/remove")).headers["set-cookie"]
    assert flash.startswith("__Host-headway_flash=")
    shown = await browser.get("/people", headers={"cookie": flash.partition(";")[0]})
    assert "bob" in shown.text
    assert shown.headers["set-cookie"].startswith('__Host-headway_flash="";')
    flow = Response()
    set_flow_cookie(server.state, flow, "state")
    assert flow.headers["set-cookie"].startswith("__Host-headway_x_oidc=")
    code, _ = server.state.notebooks.create_code("0123456789abcdef", "ann", server.state.clock())
    given, _ = await NotebookProxy(server.state).hand_over(
        h11.Request(method="GET", target=f"/open?code={code}", headers=[("host", "127.0.0.1:1")])
    )
    notebook = [value.decode() for name, value in given if name == b"set-cookie"]
    assert [cookie.partition("=")[0] for cookie in notebook] == [
        "__Secure-headway_notebook_0123456789abcdef", "__Host-headway_x_notebooks"
    ]  # fmt: skip
    for cookie in (flash, shown.headers["set-cookie"], flow.headers["set-cookie"], *notebook):
        assert "secure" in [word.strip().lower() for word in cookie.split(";")], cookie
        assert cookie.startswith("__Secure-") or "path=/;" in f"{cookie.lower()};", "a browser refuses it otherwise"
