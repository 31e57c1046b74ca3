"""Half-sent requests and open streams do not take the server from others."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from urllib.parse import urlsplit

import httpx

from headway.server.request_head_limits import HEAD_S, MAX_WAITING
from tests.support.servers.server_process import Start

HALF = b"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "


def connect(url: str) -> socket.socket:
    return socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=60)


def answers(sockets: list[socket.socket], until: float) -> dict[socket.socket, bytes]:
    """Returns what the server answered to each socket that it closed, when it has closed all or at `until`."""
    found: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as waiting:
        for sock in sockets:
            waiting.register(sock, selectors.EVENT_READ)
        while len(found) < len(sockets) and time.monotonic() < until:
            for key, _ in waiting.select(1):
                sock = sockets[sockets.index(key.fileobj)]  # type: ignore[arg-type]
                with contextlib.suppress(ConnectionError):
                    found[sock] = sock.recv(1000)
                found.setdefault(sock, b"")
                waiting.unregister(sock)
    return found


def is_guarded(answer: bytes) -> bool:
    """Returns whether browsers neither show the answer as another type nor in a frame."""
    head = answer.lower()
    return b"x-content-type-options: nosniff\r\n" in head and b"frame-ancestors 'none'" in head


def test_answer_to_what_is_no_http_has_security_headers(start: Start) -> None:
    with connect(start().url) as sock:
        sock.sendall(b"no http\r\n\r\n")
        content = sock.recv(1000)
    assert content.startswith(b"HTTP/1.1 400 ")
    assert is_guarded(content)


def test_half_sent_requests_end_and_never_keep_others_out(start: Start) -> None:
    server = start()
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(connect(server.url)) for _ in range(2 * MAX_WAITING)]
        for sock in sockets:
            sock.sendall(HALF)
        early = answers(sockets[:MAX_WAITING], time.monotonic() + 60)
        assert len(early) == MAX_WAITING, "the server keeps more connections that wait for the rest of a request"
        assert httpx.get(f"{server.url}/api/v1/me", timeout=60, trust_env=False).status_code == 401
        late = sockets[MAX_WAITING:]
        for sock in late[:3]:  # a byte now and then does not extend the time
            sock.sendall(b"a")
        found = answers(late, began + 10 * HEAD_S)
        assert len(found) == MAX_WAITING
        timed_out = [content for content in found.values() if content.startswith(b"HTTP/1.1 408 Request Timeout")]
        assert len(timed_out) >= MAX_WAITING - 1  # the whole request of above took the place of one
        assert [content for content in [*early.values(), *timed_out] if content and not is_guarded(content)] == []
        assert time.monotonic() - began >= HEAD_S


def test_head_without_end_is_refused(start: Start) -> None:
    server = start()
    with connect(server.url) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(HALF)
        for _ in range(200):
            sock.sendall(b"a" * 1024)
    with connect(server.url) as sock:
        sock.sendall(HALF + b"a" * (300 * 1024))
        content = b""
        with contextlib.suppress(ConnectionError):
            content = sock.recv(1000)
    assert (content.startswith(b"HTTP/1.1 431 ") and is_guarded(content)) or not content
    assert httpx.get(f"{server.url}/api/v1/me", timeout=60, trust_env=False).status_code == 401
