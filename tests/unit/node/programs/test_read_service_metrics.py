"""Each finished request is counted once, under its replica; counters of tokens are read from what replicas publish."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest

from programs import read_service_metrics
from programs.read_service_metrics import count, read_counters

VLLM = """\
# TYPE vllm:generation_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a}b"} 12.0
vllm:prompt_tokens_total{engine="1",model_name="a}b"} 3.0
vllm:generation_tokens_total{engine="0"} 70
vllm:time_to_first_token_seconds_bucket{le="0.1",engine="0"} 3.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",engine="0"} 4.0
vllm:generation_tokens_total{engine="1"} nan
other_total 5
"""
LINES = [
    "31 7 red:chat slot1 r1-10.0.0.7:17001 -- 200 20 0",
    "31 9 red:chat slot1 r2-10.0.0.8:17002 -- 200 2500 2490",
    "31 8 red:chat slot1 r1-10.0.0.7:17001 SD 200 40 30",
    "31 10 red:chat slot1 <NOSRV> LR 503 60000 -1",
    "31 11 red:chat slot1 r1-10.0.0.7:17001 CD -1 9 9",
    "31 12 red:chat slot1 r1-10.0.0.7:17001 -- 101 86400000 0",
    "31 13 red:no serve <NOSRV> LR 401 0 -1",
]


def test_requests_are_counted_by_replica_with_their_times() -> None:
    after, found = count(LINES, "", 1.1)
    assert after == "31 13"
    assert found == {
        "red:chat/r1": {"requests": 4, "errors": 1, "aborted": 1, "total": {"32": 1}, "first": {"32": 1}},
        "red:chat/r2": {"requests": 1, "errors": 0, "aborted": 0, "total": {"83": 1}, "first": {"25": 1}},
        "red:chat/": {"requests": 1, "errors": 1, "aborted": 0, "total": {}, "first": {}},
    }


def test_only_requests_after_the_last_reading_are_counted() -> None:
    assert count(LINES, "31 10", 1.1)[1].keys() == {"red:chat/r1"}
    assert count(LINES, "31 13", 1.1) == ("31 13", {})
    assert len(count(LINES, "20 3", 1.1)[1]) == 3, "another process: all of its requests are new"
    assert count([], "20 3", 1.1) == ("20 3", {})


def test_counters_are_summed_over_their_labels() -> None:
    assert read_counters(VLLM) == {
        "prompt_tokens": 15,
        "generated_tokens": 70,
        "first_token": {"0.1": 3, "+Inf": 4},
    }
    assert read_counters("tgi_request_generated_tokens_sum 9\ntgi_request_input_length_sum 4\n") == {
        "prompt_tokens": 4,
        "generated_tokens": 9,
    }
    assert read_counters('{"replica": "1"}\nvllm:prompt_tokens_total\nvllm:prompt_tokens_total{ 1\n') == {}


class Endless(BaseHTTPRequestHandler):
    """Sends metrics that never end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"vllm:prompt_tokens_total 1\n" * 4096)
        except OSError:
            return

    def log_message(self, *words: object) -> None:
        """Logs nothing."""


def test_replica_whose_metrics_do_not_end_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_service_metrics, "MOST_BYTES", 1 << 16)
    with HTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert read_service_metrics.metrics_of("127.0.0.1", server.server_port) == ""
        server.shutdown()
    assert read_service_metrics.metrics_of("127.0.0.1", server.server_port) == ""


def test_proxy_that_does_not_run_has_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_service_metrics, "SOCKET", "/nonexistent/admin.sock")
    assert read_service_metrics.finished_requests() == []


def drip(listener: socket.socket) -> None:
    """Sends each client headers that never end, a byte at a time."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client:
            try:
                client.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    client.sendall(b"x")
                    time.sleep(0.02)
            except OSError:
                continue


def test_replica_whose_headers_do_not_end_holds_no_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(read_service_metrics, "METRICS_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        assert read_service_metrics.metrics_of("127.0.0.1", port) == ""
        monkeypatch.setattr(read_service_metrics, "SOCKET", "/nonexistent/admin.sock")
        monkeypatch.setattr(read_service_metrics, "THREADS", 1)
        monkeypatch.setattr(read_service_metrics, "COLLECT_S", 0.5)
        replicas = [{"name": f"red:chat/r{number}", "node": "127.0.0.1", "port": port} for number in range(1000)]
        asked = {"after": "7 1", "growth": 1.1, "replicas": replicas}
        monkeypatch.setattr(sys, "stdin", StringIO(json.dumps(asked)))
        began = time.monotonic()
        read_service_metrics.main()
        assert time.monotonic() - began < 20, "not a fifth of a second for each of a thousand"
        assert json.loads(capsys.readouterr().out) == {"after": "7 1", "requests": {}, "counters": {}}


def test_buckets_of_a_replica_are_limited() -> None:
    lines = [f'vllm:time_to_first_token_seconds_bucket{{le="{number}.5"}} 1' for number in range(1000)]
    lines.append('vllm:time_to_first_token_seconds_bucket{le="0.5"} 2')
    found = read_counters("\n".join(lines))["first_token"]
    assert (len(found), found["0.5"]) == (100, 3)
    long = "1" * 33
    assert read_counters(f'vllm:time_to_first_token_seconds_bucket{{le="{long}"}} 1').get("first_token", {}) == {}
