"""The Rest client handles slurmrestd's answers, over a small server of the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headway.errors import HeadwayError, NotFound, Unreachable
from headway.slurm.rest import SlurmRestClient, SlurmToken
from tests.support.clusters.builders import machine


def test_token_is_reused_until_shortly_before_expiry() -> None:
    from joserfc import jwt
    from joserfc.jwk import OctKey

    now = [1_800_000_000.0]
    token = SlurmToken(b"k" * 32, clock=lambda: now[0])
    first = token.text()
    claims = jwt.decode(first, OctKey.import_key(b"k" * 32)).claims
    assert (claims["sun"], claims["exp"]) == ("slurm", 1_800_000_600)
    assert claims["iat"] < 1_800_000_000
    now[0] += 470
    assert token.text() == first
    now[0] += 20
    assert token.text() != first


class Sockets:
    """A forwarded socket that leads to a small server of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.calls = 0

    async def forward_socket(self, machine: Any, remote_path: str) -> str:
        assert remote_path == "/run/headway/slurmrestd.sock"
        self.calls += 1
        return self.path


class Server:
    """Speaks just enough HTTP: one answer a connection, then it hangs up, as a restarted slurmrestd does."""

    def __init__(self, *answers: tuple[int, str | bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []

    async def __call__(self, reader: Any, writer: Any) -> None:
        while self.answers:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            status, body = self.answers.pop(0)
            if status:
                data = body if isinstance(body, bytes) else body.encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
            else:
                break
        writer.close()


async def asked(tmp_path: Path, *answers: tuple[int, str | bytes]) -> tuple[Any, Server]:
    server = Server(*answers)
    sockets = Sockets(tmp_path / "s")
    listener = await asyncio.start_unix_server(server, sockets.path)
    rest = SlurmRestClient(sockets, machine("lab-head"), SlurmToken(b"k" * 32))
    try:
        return await rest.get("/slurm/v0.0.42/ping/"), server
    finally:
        await rest.close()
        listener.close()


async def test_reconnects_after_broken_connection(tmp_path: Path) -> None:
    answer, server = await asked(tmp_path, (0, ""), (200, '{"pings": []}'))
    assert answer == {"pings": []}
    assert len(server.requests) == 2
    assert "x-slurm-user-token: ey" in server.requests[1].lower()


async def test_unreachable_slurmrestd_error_has_hint(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="slurmrestd on lab-head") as caught:
        await asked(tmp_path, (0, ""), (0, ""))
    assert "systemctl status slurmrestd" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            500,
            '{"errors": [{"error": "Unable to contact slurm controller (connect failure)"}]}',
            Unreachable,
            "slurmctld",
        ),
        (401, "Authentication failure", HeadwayError, "does not accept the server's token"),
        (404, '{"errors": [{"error": "Invalid job id specified"}]}', NotFound, "Invalid job id"),
        (500, '{"errors": [{"description": "something new"}]}', HeadwayError, "500: something new"),
        (502, "<html>", HeadwayError, "502: <html>"),
        (200, '["not", "a", "mapping"]', Unreachable, "with unreadable data"),
        (200, '{"jobs": [{"job_id": 1', Unreachable, "with unreadable data"),
    ],
)
async def test_slurmrestd_errors_map_to_headway_errors(
    tmp_path: Path, status: int, body: str, kind: type, words: str
) -> None:
    with pytest.raises(kind, match=words):
        await asked(tmp_path, (status, body))


async def test_accepts_job_name_in_invalid_utf8(tmp_path: Path) -> None:
    latin, utf = "tâche".encode("latin-1"), "tâche".encode()
    answer, _ = await asked(tmp_path, (200, b'{"jobs": [{"name": "%b"}, {"name": "%b"}]}' % (utf, latin)))
    assert [row["name"] for row in answer["jobs"]] == ["tâche", "t\ufffdche"]
