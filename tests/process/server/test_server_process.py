"""The server process starts once per folder, survives kill -9 during an operation, and ends on SIGTERM without
leftovers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headway import paths
from headway.errors import Conflict, NotFound, NotSignedIn, Unreachable
from headway.schemas.access.tokens import TokenIn
from headway.sdk.client import Client, connect
from headway.sdk.local_server import log_file, start_server, stop_server
from headway.sdk.process_liveness import is_alive
from headway.server.listen_settings import DEFAULT_PORT
from headway.server.main import bind_socket
from tests.support.paths import ROOT
from tests.support.servers.server_fakes import document
from tests.support.servers.server_process import ServerProcess, Start, resident_mib, start, state_dir

__all__ = ["start", "state_dir"]  # fixtures


def test_operation_survives_kill_9_of_the_server(start: Start, state_dir: Path) -> None:
    first = start()
    with connect(state_dir) as client:
        operation = client.clusters.apply(document())
        texts = []

        def server_is_gone() -> None:
            second = start()
            assert second.pid != first.pid
            (state_dir / "go").touch()

        for event in client.operations.events(operation.id, on_lost=server_is_gone):
            texts.append(event.text)
            if event.text == "are made" and len(texts) == 1:
                os.kill(first.pid, signal.SIGKILL)
        assert texts == ["are made", "the server was restarted; continuing", "are made", "are up"]
        final = client.operations.get(operation.id)
        assert (final.state, final.error) == ("done", None)
        assert client.clusters.only_name() == "lab"
        assert client.clusters.get("lab").state == "ready"
        assert client.clusters.document("lab").spec == document().spec


def test_next_server_resumes_operation_after_sigterm(start: Start, state_dir: Path) -> None:
    first = start()
    with connect(state_dir) as client:
        operation = client.clusters.apply(document())
        events = client.operations.events(
            operation.id, patience_s=0.5, on_lost=lambda: pytest.fail("it was stopped on purpose")
        )
        assert next(events).text == "are made"
        assert stop_server(state_dir)
        with pytest.raises(Unreachable, match="stopped"):
            list(events)
    assert not is_alive(first.pid, first.started)
    assert not (state_dir / paths.SERVER_FILE).exists()
    with pytest.raises(Unreachable, match="no server"):
        connect(state_dir)
    (state_dir / "go").touch()
    start()
    with connect(state_dir) as client:
        assert client.operations.wait(operation.id).state == "done"
    assert stop_server(state_dir)
    assert not stop_server(state_dir)


def test_one_server_runs_per_folder_with_private_files(start: Start, state_dir: Path) -> None:
    server = start()
    argv = [sys.executable, "-m", "headway.server"]
    other = subprocess.run(argv, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert other.returncode == 1
    assert f"process {server.pid}" in other.stderr
    assert "Traceback" not in other.stderr
    assert start_server(state_dir) == server
    for file in state_dir.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    token = json.loads((state_dir / paths.CLIENT_FILE).read_text())["token"]
    with Client(server.url, token) as client:
        me = client.me()
        assert me.role == "admin"
        assert client.server().pid == server.pid
        made = client.tokens.create(TokenIn(label="x"))
        with pytest.raises(NotFound):
            client.clusters.get("none")
        with pytest.raises(NotSignedIn):
            Client(server.url, "hw_wrong").me()
        client.tokens.sign_in_link()
    assert token not in log_file(state_dir).read_text()
    assert str(made.token) not in log_file(state_dir).read_text()


def test_browser_signs_in_by_link(start: Start, state_dir: Path) -> None:
    start()
    with connect(state_dir) as client:
        link = client.tokens.sign_in_link().url
        with httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as browser:
            assert browser.get(client.url).status_code == 401
            page = browser.get(link)
            assert page.status_code == 200
            assert "Headway" in page.text


def test_sdk_raises_server_exception_type(start: Start, state_dir: Path) -> None:
    start()
    with connect(state_dir) as client, pytest.raises(Conflict):
        client.clusters.apply(document(), digest="old", confirmed=True)


def test_idle_server_uses_under_120_mib(state_dir: Path) -> None:
    server = ServerProcess(state_dir, program="headway.server", env={"HEADWAY_PORT": "0"})  # without modules of tests
    try:
        server.start()
        running = server.wait_ready()
        with connect(state_dir) as client:
            client.clusters.list()
        assert resident_mib(running.pid) < 120
    finally:
        server.kill()


def test_server_import_defers_heavy_libraries() -> None:
    code = "import sys, headway.server.main, headway.web.app; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncssh", "alembic", "httpx", "cryptography", "yaml"}.intersection(ran.stdout.split())


def test_start_server_reports_startup_error(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DATABASE_URL", "mysql://h/d")
    from headway.errors import Refused

    with pytest.raises(Refused, match="database URL"):
        start_server(state_dir, port=0)


@pytest.mark.parametrize("port", ["abc", "99999", "-1"])
def test_refuses_invalid_port(state_dir: Path, monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    from headway.errors import Refused

    monkeypatch.setenv("HEADWAY_PORT", port)
    with pytest.raises(Refused, match=f"HEADWAY_PORT is not a port: '{port}'") as caught:
        start_server(state_dir)
    assert "0 uses a free port" in caught.value.hint


def test_refuses_invalid_number_of_submits(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.errors import Refused

    monkeypatch.setenv("HEADWAY_SUBMITS_PER_MINUTE", "0")
    with pytest.raises(Refused, match="HEADWAY_SUBMITS_PER_MINUTE is not a number from 1 to 999999: '0'"):
        start_server(state_dir, port=0)


def test_refuses_start_on_full_disk(state_dir: Path) -> None:
    from headway.errors import Refused
    from headway.server.state_files import require_free_space

    state_dir.mkdir()
    with pytest.raises(Refused, match="is full") as caught:
        require_free_space(state_dir, least_mib=1 << 40)
    assert "free space" in caught.value.hint


def test_log_handler_survives_full_disk() -> None:
    from headway.server.logging_config import RotatingLogHandler

    with Path("/dev/full").open("w") as full:
        RotatingLogHandler(full.fileno()).write("one more line\n")


def test_log_rotates_at_size_limit_and_keeps_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.server import logging_config

    monkeypatch.setattr(logging_config, "KEEP_BYTES", 100)
    file = tmp_path / "server.log"
    out = logging_config.RotatingLogHandler(logging_config._opened(file), file)
    for number in range(30):
        out.write(f"line {number:02}\n")
    assert file.read_text().splitlines() == [f"line {number}" for number in range(24, 30)]
    assert (tmp_path / "server.log.1").read_text().splitlines() == [f"line {number}" for number in range(12, 24)]
    assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == [0o600, 0o600]


def test_default_port_falls_back_but_explicit_port_fails() -> None:
    from headway.errors import Refused

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Refused, match="can't listen"):
            bind_socket("127.0.0.1", taken.getsockname()[1])
    with bind_socket("127.0.0.1", DEFAULT_PORT) as one, bind_socket("127.0.0.1", DEFAULT_PORT) as two:
        assert one.getsockname()[1] != two.getsockname()[1]
