"""Each audit line reaches every destination, in order, and later if a destination did not answer."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.schemas.submission.exec_commands import ExecIn, ExecOut
from headway.server.workers.audit_export import POSITIONS, AuditExportWorker
from headway.services.server_settings import AuditExport, SyslogServer
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server
from tests.support.servers.tls import certificate


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock())
    yield made
    await made.close()


def worker(server: Server, audit: AuditExport) -> AuditExportWorker:
    server.state.settings = replace(server.state.settings, audit=audit)
    return AuditExportWorker(server.state)


async def record(server: Server, *numbers: int, result: str = "ok") -> None:
    for number in numbers:
        await server.store.audit.record("ann", "cancel", "lab", {"job": number, "why": "100%s\n"}, result=result)


class Collector(BaseHTTPRequestHandler):
    """An OTLP collector that keeps what it gets, and answers 503 while it is closed."""

    def do_POST(self) -> None:
        collected: Any = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200 if collected.open else 503)
        self.end_headers()
        if collected.open:
            collected.got.append((self.path, self.headers["authorization"], body))

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextmanager
def collector() -> Iterator[Any]:
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    made.got, made.open = [], True
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


async def test_lines_are_appended_to_a_file_once(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    export = worker(server, AuditExport(file))
    (destination,) = export.destinations
    await record(server, 1, 2)
    assert await export.send_new(destination)
    file.rename(tmp_path / "audit.jsonl.1")  # as logrotate does
    await record(server, 3)
    again = AuditExportWorker(server.state)  # after a restart of the server
    assert await again.send_new(again.destinations[0])
    assert await again.send_new(again.destinations[0])
    old, new = (tmp_path / "audit.jsonl.1").read_text().splitlines(), file.read_text().splitlines()
    assert [json.loads(line)["detail"]["job"] for line in old] == [1, 2]
    assert [json.loads(line)["detail"]["job"] for line in new] == [3]
    assert json.loads(new[0])["hash"] == await server.store.audit.hash_of(3)
    assert file.stat().st_mode & 0o777 == 0o600


async def test_lines_wait_for_a_destination_that_does_not_answer(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    export = worker(server, AuditExport(folder / "audit.jsonl"))
    (destination,) = export.destinations
    await record(server, 1)
    assert not await export.send_new(destination)
    folder.mkdir()
    await record(server, 2)
    assert await export.send_new(destination)
    assert len((folder / "audit.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("transport", ["udp", "unix", "tcp"])
async def test_lines_reach_a_syslog_server(server: Server, tmp_path: Path, transport: str) -> None:
    family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM) as listener:
        listener.settimeout(60)
        address = str(tmp_path / "log") if transport == "unix" else ("127.0.0.1", 0)
        listener.bind(address)
        if transport == "tcp":
            listener.listen()
        host, port = (address, 0) if isinstance(address, str) else listener.getsockname()
        target = SyslogServer(transport, host, port)  # type: ignore[arg-type]
        export = worker(server, AuditExport(syslog=target))
        await record(server, 1)
        await record(server, 2, result="refused")
        assert await export.send_new(export.destinations[0])
        if transport == "tcp":
            connection, _ = listener.accept()
            with connection, connection.makefile() as stream:
                got = [stream.readline().rstrip("\n") for _ in range(2)]
        else:
            got = [listener.recv(65536).decode() for _ in range(2)]
    heads = ["<86>headway-audit: ", "<84>headway-audit: "]  # authpriv (10 * 8) with info (6) and warning (4)
    assert [text[: len(head)] for text, head in zip(got, heads, strict=True)] == heads
    assert [json.loads(text.partition(": ")[2])["detail"] for text in got] == [
        {"job": 1, "why": "100%s\n"},
        {"job": 2, "why": "100%s\n"},
    ]


@pytest.mark.parametrize("is_known", [True, False])
async def test_syslog_server_with_tls_must_have_a_known_certificate(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    cert, key = certificate(tmp_path, "127.0.0.1")
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    got: list[str] = []

    def listen() -> None:
        try:
            with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as connection:
                got.append(connection.makefile().readline())
        except OSError:
            pass  # the client has refused the certificate

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=listen)
        thread.start()
        export = worker(server, AuditExport(syslog=SyslogServer("tls", *listener.getsockname())))
        await record(server, 1)
        assert await export.send_new(export.destinations[0]) == is_known
        thread.join()
    assert [json.loads(line.partition(": ")[2])["detail"]["job"] for line in got if line] == [1] * is_known


async def test_lines_reach_an_otlp_collector_after_it_was_away(server: Server) -> None:
    with collector() as away:
        url = f"http://127.0.0.1:{away.server_port}/v1/logs"
        export = worker(server, AuditExport(otlp=url, otlp_headers=(("Authorization", "Bearer x"),)))
        (destination,) = export.destinations
        away.open = False
        await record(server, 1)
        assert not await export.send_new(destination)
        assert not (server.state.settings.data / POSITIONS).exists()
        away.open = True
        await record(server, 2, result="failed")
        assert await export.send_new(destination)
        ((path, authorization, body),) = away.got
    assert (path, authorization) == ("/v1/logs", "Bearer x")
    (resource,) = body["resourceLogs"]
    assert resource["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "headway"}}]
    records = resource["scopeLogs"][0]["logRecords"]
    assert [one["severityText"] for one in records] == ["INFO", "ERROR"]
    assert records[0]["body"] == {"stringValue": "ann cancel lab: ok"}
    assert records[0]["timeUnixNano"].isdigit()


@pytest.mark.parametrize("with_arguments", [False, True])
async def test_audit_line_of_exec_has_arguments_only_on_request(server: Server, *, with_arguments: bool) -> None:
    server.state.settings = replace(server.state.settings, audit=AuditExport(exec_arguments=with_arguments))
    await server.apply()
    server.backend.answers["run_command"] = ExecOut(code=0, stdout="", stderr="")
    ann = await server.client("ann")
    argv = ExecIn(argv=["mysql", "--password=s3cret x"]).model_dump()
    assert (await ann.post("/api/v1/clusters/lab/exec", json=argv)).status_code == 200
    (line, *_) = await server.store.audit.search()
    arguments = {"arguments": "'--password=s3cret x'"} if with_arguments else {}
    assert line.detail == {"user": "root", "program": "mysql", **arguments}
