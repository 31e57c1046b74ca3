"""Rows are sent to a server with the OpenAI API, which is started again when it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from batch_worker.chat_server import ChatServer
from batch_worker.program import CallFailed, StartFailed

SERVER = """\
import http.server
import json
import os
import sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("prompt") == "die":
            os._exit(1)
        if body.get("prompt") == "cut":
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            return self.wfile.write(b"{")
        self.send_response(400 if body.get("prompt") == "bad" else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path, "body": body}).encode())

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def answers(server: ChatServer, *rows: object) -> list[object]:
    found = server.call([json.dumps(row).encode() for row in rows])
    return [str(one) if isinstance(one, CallFailed) else json.loads(one) for one in found]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # where nothing listens
    monkeypatch.delenv("no_proxy", raising=False)
    (tmp_path / "server.py").write_text(SERVER)
    return f"{sys.executable} {tmp_path / 'server.py'} {{port}} {{model}}"


def test_row_is_the_body_of_a_request(command: str) -> None:
    server = ChatServer(command, "m1", 4, 60, 600)
    try:
        chat, text, vector = answers(server, {"messages": []}, {"prompt": "a", "model": "m2"}, {"input": "b"})
        assert chat == {
            "messages": [],
            "response": {"path": "/v1/chat/completions", "body": {"model": "m1", "messages": []}},
        }
        assert text["response"] == {"path": "/v1/completions", "body": {"model": "m2", "prompt": "a"}}  # type: ignore[index]
        assert vector["response"]["path"] == "/v1/embeddings"  # type: ignore[index]
        (given,) = answers(server, {"custom_id": "7", "url": "/v1/completions", "body": {"prompt": "c"}})
        assert given["response"]["body"] == {"model": "m1", "prompt": "c"}  # type: ignore[index]
    finally:
        server.close()


def test_request_that_fails_is_the_fault_of_its_row_alone(command: str) -> None:
    server = ChatServer(command, "m1", 1, 60, 600)
    try:
        good, bad, odd, none = answers(server, {"prompt": "a"}, {"prompt": "bad"}, 7, {"text": "a"})
        cut, *faulty = answers(
            server, {"prompt": "cut"}, {"url": None}, {"body": None}, {"url": "/v1/a b", "body": {}}, {"url": "/v1/ä"}
        )
        assert str(cut).startswith("the server did not answer: IncompleteRead")
        assert "body of a row must be an object, and url a text" in str(faulty[0])
        assert all(isinstance(one, str) for one in faulty)
        assert isinstance(good, dict)
        assert str(bad).startswith("the server answered 400: ")
        assert "must be an object" in str(odd)
        assert "needs messages, prompt or input" in str(none)
        assert str(answers(server, {"prompt": "die"})[0]).startswith("the server did not answer: ")
        assert isinstance(answers(server, {"prompt": "a"})[0], dict)
    finally:
        server.close()


def test_server_that_does_not_start_computes_no_row() -> None:
    server = ChatServer(f"{sys.executable} -c pass", "m1", 1, 60, 600)
    with pytest.raises(StartFailed, match="the server ended with code 0"):
        answers(server, {"prompt": "a"})
    server.close()


def test_server_of_another_user_gets_no_row(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    server = ChatServer(command, "m1", 1, 1, 600)
    try:
        with pytest.raises(StartFailed, match="the server was not healthy within 1 s"):
            answers(server, {"prompt": "a"})
    finally:
        server.close()
