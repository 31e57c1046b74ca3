"""A request whose length can be read in two ways is refused, and what follows it is no second request."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.support.servers.server_process import Start

SECOND = b"GET /api/v1/smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
TWO_LENGTHS = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 60\r\n\r\n",
    "a length with a sign": b"Content-Length: +0\r\n\r\n",
    "chunks in other words": b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n",
    "a space before the colon": b"Content-Length : 0\r\n\r\n",
    "a line feed alone": b"X-A: b\nContent-Length: 60\r\n\r\n",
}


def test_request_with_two_readings_of_its_length_is_refused(start: Start) -> None:
    where = urlsplit(start().url)
    wrong = {}
    for name, rest in TWO_LENGTHS.items():
        with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as sock:
            sock.sendall(b"POST /api/v1/plan HTTP/1.1\r\nHost: 127.0.0.1\r\n" + rest + SECOND)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := sock.recv(65536):
                answer += piece
        if not answer.startswith(b"HTTP/1.1 400 ") or answer.count(b"HTTP/1.1 ") != 1:
            wrong[name] = answer[:300]
    assert wrong == {}
