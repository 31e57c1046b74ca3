"""Generated requests to every operation of the API, with a token of a few scopes, do not break or fill the server."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.sdk.local_server import running_server
from tests.cluster.lab import Lab

USER = "stan"
EXAMPLES = 5  # of an operation before the next one's turn
STREAM_S = 2.0  # for the next part of an event stream, which then is closed
SLOWEST_S = 60.0  # for the answer; 1 s on an idle machine, and this one runs the nodes of two clusters too


@dataclass
class Fuzzed:
    """What the server answered. `slowest`: seconds, method and path of the slowest answer."""

    answers: Counter[int] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    faults: list[str] = field(default_factory=list)

    streams: int = 0  # answers that were event streams

    def count(self, case: Any, token: str) -> None:
        """Sends one generated request and counts its answer. Of an event stream it reads what comes at first."""
        import requests

        asked = f"{case.method} {case.path}"
        sent = case.as_transport_kwargs(headers={"authorization": f"Bearer {token}"})
        began = time.monotonic()
        with requests.request(**sent, stream=True, timeout=120) as answer:
            self.slowest = max(self.slowest, (time.monotonic() - began, asked))
            self.answers[answer.status_code] += 1
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                self.streams += 1
                self._read_beginning(answer)
            text = "" if answer.status_code < 500 else answer.text
        if answer.status_code >= 500:
            self.faults.append(f"{answer.status_code} {asked}: {case.as_curl_command()}: {text[:500]}"[:2000])

    @staticmethod
    def _read_beginning(answer: Any) -> None:
        import requests

        answer.raw.connection.sock.settimeout(STREAM_S)
        with contextlib.suppress(requests.ConnectionError, StopIteration):
            next(answer.iter_content(1024))


def fuzz(url: str, token: str, cluster: str, seconds: float) -> Fuzzed:
    """Sends generated requests to all operations, in turn, for this time."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, seed, settings

    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 40
    result, ends, turn = Fuzzed(), time.monotonic() + seconds, 0
    how = settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    while time.monotonic() < ends:
        turn += 1
        for operation in operations:
            if time.monotonic() > ends:
                break

            @seed(turn)
            @how
            @given(case=operation.as_strategy())
            def send(case: Any) -> None:
                if "name" in case.path_parameters:
                    case.path_parameters["name"] = cluster  # otherwise nearly every request ends at "no such cluster"
                result.count(case, token)

            send()
    return result


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


@pytest.mark.parametrize("seconds", [60, pytest.param(600, marks=pytest.mark.soak)])
def test_generated_requests_with_a_narrow_token_neither_break_nor_fill_the_server(lab: Lab, seconds: int) -> None:
    scopes = [word for scope in ("read", "plan", "submit") for word in ("--scope", scope)]
    token = lab.cli("token", "create", USER, *scopes, "--cluster", "lab", "-q").out.strip()
    server = running_server(lab.state)
    assert server is not None
    fuzz(server.url, token, "lab", 10)  # what the server loads at first use is not what requests leave behind
    before = memory_mib(server.pid)
    try:
        result = fuzz(server.url, token, "lab", seconds)
    finally:
        lab.head("scancel", "--user", USER)
    sys.stdout.write(
        f"{sum(result.answers.values())} requests in {seconds} s: {dict(sorted(result.answers.items()))}, of them"
        f" {result.streams} event streams; slowest"
        f" {result.slowest[0]:.2f} s ({result.slowest[1]}); {before:.0f} MiB before, {memory_mib(server.pid):.0f} after\n"
    )
    assert not result.faults, "\n\n".join(result.faults[:20])
    assert result.answers[200] > 10
    assert result.answers[403] > 10, "the token does not permit what it is not for"
    assert result.streams > 0
    assert result.slowest[0] < SLOWEST_S, result.slowest
    lab.wait(lambda: memory_mib(server.pid) < 1.2 * before, "the server's memory to be given back")
