"""The client's errors and its servers."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from headway.api.docs_page import PROBLEMS
from headway.api.http.error_handlers import problem_response
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
    Unreachable,
)
from headway.schemas.base import ErrorOut
from headway.schemas.submission.batch_script_request import SubmitIn
from headway.sdk.client import Client
from headway.sdk.errors import error_from_answer
from headway.sdk.server_address import find_server
from headway.services.error_report import error_out

ERRORS = [NotSignedIn, NotAllowed, NotFound, Conflict, NeedsConfirmation, Refused, Unreachable, TooManyAtOnce]


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


def test_proxy_503_raises_unreachable() -> None:
    """Who waits for a job goes on over it."""
    import httpx

    answers = httpx.MockTransport(lambda _: httpx.Response(503, content=b"<html>no upstream"))
    with pytest.raises(Unreachable, match="but HTTP 503"), Client("http://far:1", "t", transport=answers) as client:
        client.clusters.list()
