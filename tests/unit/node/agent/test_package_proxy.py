"""The proxy on the head passes package indexes on, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from agent.package_proxy import IDLE_S, PackageProxy


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("pypi.org", 443, True),
        ("PyPI.org.", 443, True),
        ("pypi.org", 22, False),
        ("notpypi.org", 443, False),
        ("download.pytorch.org", 443, True),
        ("pytorch.org", 443, False),
        ("evilpytorch.org", 443, False),
        ("index.lab", 8080, True),
        ("index.lab", 443, False),
        ("127.0.0.1", 80, False),
    ],
)
def test_only_hosts_of_package_indexes_are_allowed(host: str, port: int, allowed: bool) -> None:
    assert PackageProxy(("pypi.org", ".pytorch.org", "index.lab:8080")).allows(host, port) is allowed


async def _ask(hosts: Sequence[str], request: str, more: bytes = b"") -> tuple[bytes, list[bytes]]:
    """Returns the proxy's answer, and the heads of requests that reached the index."""
    seen: list[bytes] = []

    async def index(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwheel")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(index, "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        proxy = PackageProxy([host.replace("PORT", str(port)) for host in hosts])
        async with await asyncio.start_server(proxy.connection, "127.0.0.1", 0) as near:
            reader, writer = await asyncio.open_connection("127.0.0.1", near.sockets[0].getsockname()[1])
            writer.write(request.replace("PORT", str(port)).encode() + more)
            answer = await asyncio.wait_for(reader.read(), 60)
            writer.close()
    return answer, seen


async def test_http_request_is_passed_on_without_the_headers_for_the_proxy() -> None:
    text = "GET http://127.0.0.1:PORT/simple/x/?a=b HTTP/1.1\r\nHost: x\r\nProxy-Authorization: secret\r\n\r\n"
    answer, (head,) = await _ask(["127.0.0.1:PORT"], text)
    assert answer.endswith(b"wheel")
    assert head == b"GET /simple/x/?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def test_connect_opens_a_tunnel() -> None:
    inner = b"GET /simple/ HTTP/1.1\r\n\r\n"
    answer, (head,) = await _ask(["127.0.0.1:PORT"], "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n", inner)
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert head == inner


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ("CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n", b"403"),
        ("GET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n", b"403"),
        ("GET ftp://pypi.org/ HTTP/1.1\r\n\r\n", b"400"),
        ("CONNECT nowhere.invalid:443 HTTP/1.1\r\n\r\n", b"502"),
    ],
)
async def test_everything_else_is_refused_with_a_reason(request_: str, code: bytes) -> None:
    answer, seen = await _ask(["pypi.org", "nowhere.invalid"], request_)
    assert answer.split(b" ")[1] == code
    assert seen == []


@pytest.mark.parametrize("text", ["nonsense\r\n\r\n", "CONNECT pypi.org:x HTTP/1.1\r\n\r\n", "GET / x y z\r\n\r\n"])
async def test_unreadable_requests_are_dropped(text: str) -> None:
    answer, seen = await _ask(["pypi.org"], text)
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert seen == []


@contextlib.asynccontextmanager
async def _tunnel() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yields the client's end of a tunnel, and the writer of the index at its other end."""
    reached: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def index(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set_result(writer)

    async with await asyncio.start_server(index, "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        proxy = PackageProxy([f"127.0.0.1:{port}"])
        async with await asyncio.start_server(proxy.connection, "127.0.0.1", 0) as near:
            reader, writer = await asyncio.open_connection("127.0.0.1", near.sockets[0].getsockname()[1])
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            yield reader, await reached
            writer.close()
            (await reached).close()


def _move_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Lets the event loop's time jump."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


async def test_long_download_is_not_idle_although_the_client_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _tunnel() as (reader, index):
        for piece in (b"1", b"2", b"3"):
            _move_clock(monkeypatch, 0.7 * IDLE_S)
            index.write(piece)
            assert await reader.read(1) == piece


async def test_tunnel_without_any_traffic_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _tunnel() as (reader, _):
        _move_clock(monkeypatch, IDLE_S + 1)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), IDLE_S) == b""
