"""The server process is started once, found and stopped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway import paths
from headway.errors import Refused
from headway.schemas.server import ServerOut
from headway.sdk import local_server
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture

# Does what the real server's process does with its folder, and no more.
STAND_IN = """
import fcntl, json, os, signal, socket, sys
from pathlib import Path
folder = Path(os.environ["HEADWAY_STATE"])
lock = (folder / "server.lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("a server runs already")
if os.environ.get("STAND_IN_FAILS"):
    sys.exit("port 80 is taken")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
listening = socket.create_server(("127.0.0.1", 0))
new = folder / ".new"
new.write_text(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}", "pid": os.getpid()}))
new.rename(folder / "server.json")
while True:
    signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    program = tmp_path / "server.py"
    program.write_text(STAND_IN)
    monkeypatch.setattr(local_server, "server_argv", lambda: [sys.executable, str(program)])
    state = tmp_path / "state"
    monkeypatch.setenv("HEADWAY_STATE", str(state))
    yield state
    local_server.stop_server(state)


def test_server_start_is_idempotent_and_stop_ends_the_server(folder: Path, cli: Cli) -> None:
    assert local_server.running_server() is None
    assert "the server is running at http://127.0.0.1:" in cli("server", "start").out
    first = local_server.running_server()
    assert first is not None
    assert first.pid != os.getpid()
    assert "is already running" in cli("server", "start").out
    assert local_server.start_server() == first == local_server.running_server()
    assert cli("server", "stop").out == "the server has stopped\n"
    assert local_server.running_server() is None
    assert cli("server", "stop").out == "no server is running\n"


def test_concurrent_starts_create_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: local_server.start_server(folder), range(4)))
    assert len({server.pid for server in found}) == 1


def test_server_start_reports_why_the_process_exited(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    done = cli("server", "start")
    assert done.code == 1
    assert done.err.startswith("error: the server did not start: port 80 is taken\n")


def test_server_start_fails_when_the_server_never_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "START_S", 0.1)
    monkeypatch.setattr("headway.transport.process.spawn", lambda *_, **__: os.getpid())
    with pytest.raises(Refused, match="did not answer within"):
        local_server.start_server(folder)


def test_server_start_refuses_a_state_folder_it_cannot_create(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="can't be created"):
        local_server.start_server(tmp_path / "file/state")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "x"}', '{"url": "x", "pid": 4194305}'])
def test_stale_or_invalid_server_file_counts_as_no_running_server(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / paths.SERVER_FILE).write_text(text)
    assert local_server.running_server(folder) is None


def test_server_status_prints_the_url(cli: Cli) -> None:
    cli.api.on(
        "server",
        ServerOut(url="http://127.0.0.1:9", version="1", pid=1, state_dir="/s", database="sqlite", clusters=2),
    )
    assert json.loads(cli("server", "status", "-o", "json").out)["url"] == "http://127.0.0.1:9"
    assert "http://127.0.0.1:9" in cli("server", "status").out


def test_server_logs_fails_without_a_log_file(folder: Path, cli: Cli) -> None:
    assert cli("server", "logs").code == 7


def test_server_logs_prints_the_last_n_lines(folder: Path, cli: Cli) -> None:
    folder.mkdir()
    (folder / paths.LOG_FILE).write_text("".join(f"line {i}\n" for i in range(5000)))
    assert cli("server", "logs", "-n", "2").out == "line 4998\nline 4999\n"


def test_systemd_unit_quotes_its_words(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE", '/a b/100%/"$x')
    unit = cli("server", "install", "--print").out
    assert 'Environment="HEADWAY_STATE=/a b/100%%/\\"$x"' in unit, (
        "$ is but a $ there, and stands for variables in commands"
    )
    assert '"-m" "headway.server"' in unit
    monkeypatch.setattr("headway.sdk.local_server.server_argv", lambda: ["/opt/$x/python"])
    assert 'ExecStart="/opt/$$x/python"' in cli("server", "install", "--print").out


def test_systemd_unit_contains_absolute_paths(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("DATA", "data"), ("DATASET_ROOTS", "a:/b:"), ("TLS_CERT", "cert.pem"), ("OIDC_CLIENT_SECRET_FILE", "secret"),
        ("PUBLIC_URL", "https://h:1"),
    ):  # fmt: skip
        monkeypatch.setenv(f"HEADWAY_{name}", text)
    unit = cli("server", "install", "--print").out
    for line in (
        f"DATA={tmp_path}/data", f"DATASET_ROOTS={tmp_path}/a:/b", f"TLS_CERT={tmp_path}/cert.pem",
        f"OIDC_CLIENT_SECRET_FILE={tmp_path}/secret", "PUBLIC_URL=https://h:1",
    ):  # fmt: skip
        assert f'Environment="HEADWAY_{line}"\n' in unit
