"""HTTP of a job's MLflow receiver: one listener for the job's processes, and one at a Unix socket for Headway's server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headway_train.mlflow_receiver.answers import Asked, Receiver
from headway_train.mlflow_receiver.journal import Journal
from headway_train.mlflow_receiver.runs import Answer, Runs

MOST_BODY = 64 * 1024 * 1024  # bytes of a request that is not an upload
WAIT_S = 25.0  # how long Headway's server waits for a request
_PART = 1 << 20
IDLE_S = 300.0  # an unused connection is closed
_ARTIFACTS = ("/api/2.0/mlflow-artifacts/artifacts/", "/ajax-api/2.0/mlflow-artifacts/artifacts/")


def serve(listening: socket.socket, token: str, folder: Path, job: str) -> None:
    """Answers requests for ever."""
    import getpass

    journal = Journal(folder, job)

    def ask(method: str, path: str, query: str, body: dict[str, Any] | None) -> Answer | None:
        one = Asked(method, f"{path}?{query}", {}, json.dumps(body).encode() if body else b"")
        return (one.status, json.loads(one.read())) if receiver.questions.ask(one) else None

    runs = Runs(getpass.getuser(), ask)
    for name, body in journal.read():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            runs.learn(name, body)
    runs.first = ""  # the job's metrics are those of the first run since it was started
    receiver = Receiver(journal, runs, token, time.time())
    threading.Thread(target=_serve_socket, args=(receiver, journal.socket), daemon=True).start()
    server = _Server(listening, JobHandler)
    server.receiver = receiver
    server.serve_forever()


class _Server(ThreadingHTTPServer):
    receiver: Receiver

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        socketserver.TCPServer.__init__(self, ("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening


def _serve_socket(receiver: Receiver, path: Path) -> None:
    """Listens at the Unix socket. A folder whose file system has no sockets leaves requests unanswered, and the rest works."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listening = socket.socket(socket.AF_UNIX)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)  # the path of a socket may have 107 bytes at most
        try:
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o600)
        listening.listen(16)
        server = _Server(listening, ServerHandler)
        server.receiver = receiver
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: _Server
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing: standard error is closed."""

    def address_string(self) -> str:
        """Returns a constant: a Unix socket has no address."""
        return "job"

    def read_body(self) -> bytes:
        """Returns the request's body. Raises ValueError if it is too long."""
        size = int(self.headers.get("Content-Length") or 0)
        if size > MOST_BODY:
            raise ValueError(f"a request may have {MOST_BODY} bytes")
        return self.rfile.read(size)

    def send(
        self, status: int, body: bytes, kind: str = "application/json", more: dict[str, str] | None = None
    ) -> None:
        """Sends an answer."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def refuse(self, status: int, code: str, text: str) -> None:
        """Sends an error in MLflow's form."""
        self.close_connection = True
        self.send(status, json.dumps({"error_code": code, "message": text}).encode())


class JobHandler(_Handler):
    """Answers the job's processes."""

    disable_nagle_algorithm = True  # an option of TCP, which a Unix socket refuses

    def do_GET(self) -> None:
        """Answers one request."""
        receiver = self.server.receiver
        if not receiver.allows(self.headers.get("Authorization", "")):
            self.refuse(
                401, "UNAUTHENTICATED", "this MLflow receiver is another job's: its token is MLFLOW_TRACKING_TOKEN"
            )
            return
        parts = urlsplit(self.path)
        try:
            prefix = next((one for one in _ARTIFACTS if parts.path.startswith(one)), "")
            if self.command == "PUT" and prefix:
                size = int(self.headers["Content-Length"])
                receiver.upload(unquote(parts.path.removeprefix(prefix)), self.rfile, size)
                self.send(200, b"{}")
                return
            raw = self.read_body()
            body = json.loads(raw) if raw and "json" in self.headers.get("Content-Type", "json") else {}
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            answer = receiver.answer(self.command, parts.path, query, body if isinstance(body, dict) else {})
        except OSError as error:
            self.refuse(503, "TEMPORARILY_UNAVAILABLE", f"the job's journal can't be written: {error}")
            return
        except (ValueError, KeyError, TypeError) as error:
            self.refuse(400, "INVALID_PARAMETER_VALUE", repr(error))
            return
        if answer is not None:
            self.send(answer[0], json.dumps(answer[1]).encode())
            return
        kept = {name: value for name, value in self.headers.items() if name.lower() in ("content-type", "accept")}
        asked = Asked(self.command, self.path, kept, raw)
        if receiver.questions.ask(asked):
            self.copy(asked)
        else:
            self.refuse(503, "TEMPORARILY_UNAVAILABLE", "the MLflow server did not answer; what the job logs is kept")

    def copy(self, asked: Asked) -> None:
        """Sends the answer of Headway's server as it comes."""
        try:
            self.send_response(asked.status)
            self.send_header("Content-Type", asked.type)
            self.send_header("Content-Length", str(asked.size))
            self.end_headers()
            left = asked.size
            while left > 0 and (part := asked.source.read(min(_PART, left))):
                self.wfile.write(part)
                left -= len(part)
            self.wfile.flush()
            self.close_connection = self.close_connection or left > 0
        finally:
            asked.copied.set()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815


class ServerHandler(_Handler):
    """Hands requests to Headway's server: GET /next returns one, POST /answers/NUMBER answers it."""

    def do_GET(self) -> None:
        """Returns the next request; 204 if there is none."""
        found = self.server.receiver.questions.next(WAIT_S)
        if found is None:
            self.send(204, b"")
            return
        number, one = found
        said = {"number": number, "method": one.method, "target": one.target, "headers": one.headers}
        self.send(200, one.body, "application/octet-stream", {"X-Request": json.dumps(said)})

    def do_POST(self) -> None:
        """Passes an answer on."""
        size = int(self.headers.get("Content-Length") or 0)
        number = int(self.path.rpartition("/")[2])
        kind = self.headers.get("X-Type", "application/json")
        self.server.receiver.questions.answer(number, int(self.headers.get("X-Status", "502")), kind, self.rfile, size)
        self.close_connection = True
        self.send(204, b"")
