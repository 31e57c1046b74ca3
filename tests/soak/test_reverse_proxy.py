"""The nginx example of docs/howto/sign-in-tls.md works, with other names, ports and files, as a real nginx in front
of a real server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headway.sdk.client import connect
from tests.support.servers.server_process import Start, guessed_token_addresses, start, state_dir
from tests.support.servers.tls import certificate

__all__ = ["start", "state_dir"]  # fixtures
NGINX = os.environ.get("HEADWAY_NGINX") or shutil.which("nginx")
pytestmark = [pytest.mark.soak, pytest.mark.skipif(not NGINX, reason="needs nginx: apt install nginx-light")]
DOCS = Path(__file__).parents[2] / "docs/howto/sign-in-tls.md"


def example() -> str:
    """Returns the indented block of the documentation that begins with nginx's map."""
    text = DOCS.read_text()
    at = text.index("    map $http_upgrade")
    block = re.match(r"(?:    .*\n|\n)+", text[at:])
    assert block
    return block[0]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def front(start: Start, tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Yields (nginx's port, a context that trusts its certificate); clients connect to https://localhost:PORT."""
    port = free_port()
    public = f"https://localhost:{port}"
    server = start(HEADWAY_PUBLIC_URL=public, HEADWAY_TRUSTED_PROXIES="127.0.0.1")
    cert, key = certificate(tmp_path, "localhost")
    text = example().replace("127.0.0.1:7878", server.url.removeprefix("http://"))
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("headway.example.org", "localhost")
    text = text.replace("/etc/headway/fullchain.pem", str(cert)).replace("/etc/headway/key.pem", str(key))
    for folder in ("logs", "body", "proxy", "fastcgi", "uwsgi", "scgi"):
        (tmp_path / folder).mkdir()
    paths = "".join(f"{name}_temp_path {tmp_path}/{name};\n" for name in ("proxy", "fastcgi", "uwsgi", "scgi"))
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/body;\n{paths}{text}}}\n"
    )
    assert NGINX
    nginx = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(conf), "-e", str(tmp_path / "error.log")])
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert nginx.poll() is None, (tmp_path / "error.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield port, ssl.create_default_context(cafile=str(cert))
    finally:
        nginx.terminate()
        nginx.wait(20)


def test_sign_in_and_event_stream_work_through_documented_nginx(
    front: tuple[int, ssl.SSLContext], tmp_path: Path
) -> None:
    port, trusted = front
    url = f"https://localhost:{port}"
    with httpx.Client(base_url=url, verify=trusted) as browser:
        guess = {"authorization": "Bearer hw_guess", "x-forwarded-for": "203.0.113.9"}
        assert browser.get("/api/v1/me", headers=guess).status_code == 401
        # the address that nginx saw, not the one that the client claimed
        assert guessed_token_addresses(tmp_path / "state") == ["127.0.0.1"]
        with connect() as client:
            link = client.tokens.sign_in_link().url
        assert link.startswith(f"{url}/signin?code=")
        answer = browser.get(link)
        assert (answer.status_code, answer.headers["set-cookie"][:7]) == (303, "__Host-")
        assert browser.get("/api/v1/me").json()["role"] == "admin"
        ask = "/api/v1/signin-links"
        assert browser.post(ask, headers={"origin": url}).status_code == 201
        assert browser.post(ask, headers={"origin": "https://evil.example"}).status_code == 403
        first = threading.Event()

        def follow() -> None:
            with browser.stream("GET", "/api/v1/events", timeout=30) as events:
                for line in events.iter_lines():
                    if line == "event: ready":
                        first.set()
                        return

        following = threading.Thread(target=follow)
        following.start()
        assert first.wait(20), "the proxy holds events back"
        following.join(20)
        big = browser.post("/api/v1/plan", headers={"origin": url}, content=b" " * (17 * 2**20))
        assert big.status_code == 413
