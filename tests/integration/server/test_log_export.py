"""The server's log reaches a syslog server, whole, also when it is rotated and when the syslog server was away."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import paths
from headway.server import log_export, syslog
from headway.server.log_export import LogExport
from headway.services.server_settings import SyslogServer


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Returns a syslog server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        found.settimeout(60)
        yield found


def received(listener: socket.socket, number: int) -> list[str]:
    return [listener.recv(65536).decode() for _ in range(number)]


def write(file: Path, *events: str, level: str = "info") -> None:
    with file.open("a") as out:
        out.writelines(f'{{"event": "{event}", "level": "{level}"}}\n' for event in events)


def line(event: str, priority: int = 30, level: str = "info") -> str:  # daemon (3 * 8) with info (6)
    return f'<{priority}>headway-server: {{"event": "{event}", "level": "{level}"}}'


async def test_each_line_is_sent_once_over_restarts_and_rotation(tmp_path: Path, listener: socket.socket) -> None:
    file = tmp_path / paths.LOG_FILE
    target = SyslogServer("udp", *listener.getsockname())
    write(file, "a", "b")
    write(file, "c", level="warning")
    assert await LogExport(tmp_path, target).send_new()
    assert received(listener, 3) == [line("a"), line("b"), line("c", 28, "warning")]
    write(file, "d")
    file.rename(tmp_path / f"{paths.LOG_FILE}.1")
    write(file, "e")
    again = LogExport(tmp_path, target)  # after a restart of the server
    assert await again.send_new()
    assert await again.send_new()
    write(file, "f")
    assert await again.send_new()
    assert received(listener, 3) == [line("d"), line("e"), line("f")]
    assert (tmp_path / log_export.POSITION).stat().st_mode & 0o777 == 0o600


async def test_half_a_line_waits_for_its_end(tmp_path: Path, listener: socket.socket) -> None:
    file = tmp_path / paths.LOG_FILE
    file.write_text("Trace")
    export = LogExport(tmp_path, SyslogServer("udp", *listener.getsockname()))
    assert await export.send_new()
    file.write_text("Traceback\n")
    assert await export.send_new()
    assert received(listener, 1) == ["<27>headway-server: Traceback"]


async def test_line_that_is_too_long_for_a_datagram_is_cut(tmp_path: Path, listener: socket.socket) -> None:
    write(tmp_path / paths.LOG_FILE, "a", "é" * 40_000, "b")
    export = LogExport(tmp_path, SyslogServer("udp", *listener.getsockname()))
    assert await export.send_new()
    first, cut, last = received(listener, 3)
    assert (first, last) == (line("a"), line("b"))
    assert cut.startswith('<30>headway-server: {"event": "éé')
    assert cut.endswith("é [cut]")
    assert await export.send_new()
    write(tmp_path / paths.LOG_FILE, "c")
    assert await export.send_new()
    assert received(listener, 1) == [line("c")], "no line is sent twice"


async def test_lines_before_one_that_fails_are_not_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / paths.LOG_FILE, "a", "b", "c")
    sent: list[str] = []
    fails = ["b"]

    def emit(_: object, record: logging.LogRecord) -> None:
        event = json.loads(record.getMessage())["event"]
        if event in fails:
            raise OSError("refused")
        sent.append(event)

    monkeypatch.setattr(syslog._Connection, "emit", emit)
    export = LogExport(tmp_path, SyslogServer("udp", "127.0.0.1", 9))
    assert not await export.send_new()
    fails.clear()
    assert await export.send_new()
    assert sent == ["a", "b", "c"]


async def test_lines_wait_for_a_syslog_server_that_is_away(tmp_path: Path) -> None:
    write(tmp_path / paths.LOG_FILE, "a", "b")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(60)
        export = LogExport(tmp_path, SyslogServer("tcp", *listener.getsockname()))
        assert not await export.send_new(), "nothing listens"
        listener.listen()
        assert await export.send_new()
        connection, _ = listener.accept()
        with connection, connection.makefile() as stream:
            assert [stream.readline().rstrip("\n") for _ in range(2)] == [line("a"), line("b")]
