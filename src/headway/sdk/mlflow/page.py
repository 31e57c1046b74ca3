"""MLflow's pages on this computer: a small HTTP server on loopback that asks Headway's server with the person's token.

MLflow shows files of jobs. In a browser that is signed in to Headway, at the same address, they could act as the person; here
they have an address of their own, without Headway's session. Other users of this computer have no access: the browser needs a
secret, which it gets once by the link."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headway.errors import HeadwayError
from headway.sdk.client import Client
from headway.sdk.connection import cluster_path

_COOKIE = "headway_mlflow"
_MOST_BODY = 8 * 1024 * 1024  # bytes of a search
_SENT = ("accept", "content-type", "range", "if-none-match", "if-modified-since")
_RETURNED = ("content-type", "content-disposition", "content-range", "etag", "last-modified", "cache-control")


class MlflowPage(ThreadingHTTPServer):
    """The server. `link` is the address to open; `serve_forever` serves."""

    daemon_threads = True

    def __init__(self, client: Client, cluster: str, team: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.client = client
        self.path = cluster_path(cluster, "mlflow", team)
        self.secret = secrets.token_urlsafe(32)
        self.host = f"127.0.0.1:{self.server_address[1]}"

    @property
    def link(self) -> str:
        """Returns the address to open in a browser."""
        return f"http://{self.host}/?secret={self.secret}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MlflowPage

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Prints nothing: the terminal is the person's."""

    def do_GET(self) -> None:
        """Answers a page, a file or a search."""
        parts = urlsplit(self.path)
        if self.headers.get("Host") != self.server.host:  # another site's name that leads here
            self._send(403, b"this is not the address of this page\n")
        elif parts.path == "/" and self._is_secret((parse_qs(parts.query).get("secret") or [""])[0]):
            cookie = f"{_COOKIE}={self.server.secret}; Path=/; HttpOnly; SameSite=Strict"
            self._send(303, b"", {"Location": "/", "Set-Cookie": cookie})
        elif not self._is_secret(self._cookie()):
            self._send(403, b"open the link that headway mlflow ui printed\n")
        else:
            self._forward(parts.path.lstrip("/"), parts.query)

    do_POST = do_GET  # noqa: N815

    def _cookie(self) -> str:
        found = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        return found.value if found is not None else ""

    def _is_secret(self, said: str) -> bool:
        return secrets.compare_digest(said.encode(), self.server.secret.encode())

    def _forward(self, path: str, query: str) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _MOST_BODY:
            self._send(413, b"the request is too large\n")
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() in _SENT}
        whole = f"{self.server.path}/{path}"
        try:
            with self.server.client.forward(
                self.command, whole, query=query, headers=headers, content=self.rfile.read(size)
            ) as answer:
                self.send_response(answer.status_code)
                for name in _RETURNED:
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                _copy(answer.iter_bytes, self.wfile.write)
        except HeadwayError as error:
            self._send(502, f"{error.message}\n".encode())
        except OSError:
            self.close_connection = True  # the browser has gone

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in {
            "Content-Type": "text/plain",
            "Connection": "close",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _copy(pieces: Callable[[], Any], write: Callable[[bytes], Any]) -> None:
    for piece in pieces():
        write(piece)
