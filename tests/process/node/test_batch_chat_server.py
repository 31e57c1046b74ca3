"""Rows are sent to a server with the OpenAI API, which is started again when it ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from batch_worker import chat_server
from batch_worker.chat_server import ChatServer
from batch_worker.program import CallEnded, CallFailed, StartFailed
from batch_worker.shared_files import SharedFiles
from batch_worker.worker import FOLDERS, Worker

SERVER = """\
import http.server
import json
import os
import signal
import sys

if os.path.exists("alive"):
    alive = open("alive", "w")  # closed when the server has ended

class Answers(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self):
        self.send_response(Answers.status)
        self.end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("prompt") == "die":
            os._exit(1)
        if body.get("prompt") == "stop":
            Answers.status = 503
            self.send_error(500)
            self.wfile.flush()
            os._exit(1)
        if body.get("prompt") == "hang":
            signal.pause()
        if body.get("prompt") == "cut":
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            return self.wfile.write(b"{")
        self.send_response({"bad": 400, "fault": 500}.get(body.get("prompt"), 200))
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


@pytest.mark.parametrize("ends", ["die", "stop"])
def test_row_that_ends_the_server_fails_alone(command: str, tmp_path: Path, ends: str) -> None:
    folder = tmp_path / "batch"
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    prompts = ["a", "b", ends, "c", "d", "e"]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps({'prompt': prompt})}\n" for prompt in prompts))
    settings = {
        "input": str(tmp_path / "rows.jsonl"), "shard_rows": 6, "call_rows": 4, "tries": 2, "lease_s": 600, "about": {},
    }  # fmt: skip
    server = ChatServer(command, "m1", 4, 60, 600)
    try:
        Worker(SharedFiles(str(folder / "tmp")), str(folder), settings, server, "7", "0", "n1").work()
    finally:
        server.close()
    results = [json.loads(line) for line in (folder / "output/part-00000.jsonl").read_text().splitlines()]
    assert [result["prompt"] for result in results] == ["a", "b", "c", "d", "e"]
    (error,) = (folder / "output/errors-00000.jsonl").read_text().splitlines()
    assert json.loads(error)["line"] == 3


def test_fault_of_a_server_that_goes_on_is_that_of_its_row(command: str) -> None:
    server = ChatServer(command, "m1", 1, 60, 600)
    try:
        (fault,) = server.call([b'{"prompt": "fault"}'])
        assert type(fault) is CallFailed
        (stop,) = server.call([b'{"prompt": "stop"}'])
        assert type(stop) is CallEnded
    finally:
        server.close()


def test_server_that_hangs_but_is_healthy_is_ended(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("alive")
    pipe = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    server = ChatServer(command, "m1", 2, 60, 1)
    try:
        assert "the server did not answer: timed out" in str(answers(server, {"prompt": "hang"}, 7)[0])
        os.set_blocking(pipe, True)
        assert os.read(pipe, 1) == b""  # the server has ended
        monkeypatch.setattr(chat_server, "MOST_UNANSWERED", 2)
        with pytest.raises(StartFailed, match="no request of 2 calls in a row was answered"):
            answers(server, {"prompt": "hang"})
    finally:
        server.close()
        os.close(pipe)


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
