"""The client's errors and its servers."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import httpx
import pytest

from headway import paths
from headway.api.docs_page import PROBLEMS
from headway.api.http.error_handlers import problem_response
from headway.code_digest import code_digest
from headway.errors import (
    CommandFailed,
    Conflict,
    Fault,
    HeadwayError,
    InvalidSpec,
    NeedsConfirmation,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Refused,
    TooManyAtOnce,
    TooManySubmits,
    Unreachable,
)
from headway.schemas.base import ErrorOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.sdk.client import Client
from headway.sdk.connection import Connection
from headway.sdk.errors import error_from_answer
from headway.sdk.server_address import find_server
from headway.services.error_report import error_out

ERRORS = [
    NotSignedIn,
    NotAllowed,
    NotFound,
    Conflict,
    NeedsConfirmation,
    Refused,
    Unreachable,
    TooManyAtOnce,
    TooManySubmits,
]


@pytest.mark.parametrize("cls", ERRORS)
def test_client_raises_same_error_class_as_server(cls: type[HeadwayError]) -> None:
    sent = problem_response(cls.http_status, error_out(cls("what", hint="do")))
    server = httpx.MockTransport(lambda _: httpx.Response(sent.status_code, content=bytes(sent.body)))
    with Client("http://server", "t", transport=server) as client, pytest.raises(cls) as caught:
        client.me()
    assert type(caught.value) is cls
    assert (caught.value.message, caught.value.hint) == ("what", "do")
    assert PROBLEMS[cls.kind][0] == sent.status_code


def test_faults_and_command_failures_survive_serialization() -> None:
    spec = error_from_answer(error_out(InvalidSpec([Fault("a.b", "bad", "do c")], "the pipeline file")))
    assert isinstance(spec, InvalidSpec)
    assert spec.faults == (Fault("a.b", "bad", "do c"),)
    assert str(spec) == "the pipeline file has 1 fault:\n  a.b: bad; do c"
    sent = CommandFailed(["sbatch", "x"], 2, "no partition", where="lab-head")
    command = error_from_answer(error_out(sent))
    assert isinstance(command, CommandFailed)
    assert str(command) == str(sent)
    newer = error_from_answer(ErrorOut(kind="of_the_future", message="m"))
    assert type(newer) is HeadwayError


def test_client_fails_over_to_next_server_with_same_idempotency_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    one, two = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    urls = [f"http://127.0.0.1:{server.getsockname()[1]}" for server in (one, two)]
    monkeypatch.setenv("HEADWAY_URL", f" {urls[0]} , {urls[1]},")
    keys: list[str] = []

    def far(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if str(request.url).startswith(urls[0]):
            one.close()  # it is killed under the request
            raise httpx.RemoteProtocolError("gone", request=request)
        return httpx.Response(201, json={"job_id": 7, "cluster": "lab", "user": "ann", "workdir": "~"})

    url, token, refresh = find_server()
    with two, Client(url, token, refresh=refresh, transport=httpx.MockTransport(far)) as client:
        assert client.url == urls[0]
        assert client.jobs.sbatch("lab", SubmitIn()).job_id == 7
        assert client.url == urls[1]
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize(("code", "explained"), [("of another day", True), (code_digest(), False)])
def test_errors_of_a_local_server_with_other_code_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, explained: bool
) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    (tmp_path / paths.SERVER_FILE).write_text(json.dumps({"url": "http://server", "code": code}))
    fault = problem_response(422, error_out(InvalidSpec([Fault("secrets", "Extra inputs are not permitted")])))
    refused = httpx.Response(422, content=bytes(fault.body))
    other_form = httpx.Response(200, json={"person": 7})
    for answer in (refused, other_form):
        server = httpx.MockTransport(lambda _, answer=answer: answer)  # type: ignore[misc]
        with Client("http://server", "t", transport=server) as client, pytest.raises(HeadwayError) as caught:
            client.me()
        assert ("headway server stop" in caught.value.hint) is explained
        with Client("http://another", "t", transport=server) as client, pytest.raises(HeadwayError) as caught:
            client.me()
        assert "headway server stop" not in caught.value.hint


def test_proxy_503_raises_unreachable() -> None:
    """Who waits for a job goes on over it."""
    import httpx

    answers = httpx.MockTransport(lambda _: httpx.Response(503, content=b"<html>no upstream"))
    with pytest.raises(Unreachable, match="but HTTP 503"), Client("http://far:1", "t", transport=answers) as client:
        client.clusters.list()


def too_fast(wait_s: int, kind: type[HeadwayError] = TooManySubmits) -> httpx.Response:
    """Returns the answer of a server to a person who submits too fast."""
    sent = problem_response(429, error_out(kind("ann submits too fast")), {"retry-after": str(wait_s)})
    return httpx.Response(429, content=bytes(sent.body), headers=dict(sent.headers))


def test_client_waits_as_long_as_the_server_says_and_submits_again(caplog: pytest.LogCaptureFixture) -> None:
    done = httpx.Response(201, json={"job_id": 7, "cluster": "lab", "user": "ann", "workdir": "~"})
    answers, slept = iter([too_fast(3), too_fast(2, TooManyAtOnce), done]), list[float]()
    connection = Connection("http://server", transport=httpx.MockTransport(lambda _: next(answers)), sleep=slept.append)
    assert connection.post("/clusters/lab/jobs", SubmitOut, SubmitIn()).job_id == 7
    assert slept == [3, 2]
    assert caplog.messages[0] == "ann submits too fast; trying again in 3 s"


def test_client_gives_up_when_the_waits_of_a_request_become_too_long() -> None:
    slept = list[float]()
    connection = Connection("http://server", transport=httpx.MockTransport(lambda _: too_fast(50)), sleep=slept.append)
    with pytest.raises(TooManySubmits, match="too fast") as caught:
        connection.post("/clusters/lab/jobs", SubmitOut, SubmitIn())
    assert caught.value.retry_after_s == 50
    assert slept == [50, 50]


def test_rented_things_are_asked_for_at_their_address() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, json={"things": [], "silent": [], "usd_per_hour": "0"})

    with Client("http://server", "t", transport=httpx.MockTransport(answer)) as client:
        assert client.nodes.rented().things == []
    assert asked == ["/api/v1/rented"]
