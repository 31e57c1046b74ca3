"""Each finished request is counted once, under its replica; counters of tokens are read from what replicas publish."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

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
