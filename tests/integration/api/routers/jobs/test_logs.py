"""An interrupted log stream is never reported as complete, and a followed log resumes at its offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from headway import Client
from headway.api.http import authorized_stream
from headway.errors import NotAllowed, NotFound, Refused, Unreachable
from headway.jobs.logs.follow import log_piece
from headway.schemas.submission.stream_frames import frame, frames
from headway.sdk import reconnect
from headway.services.error_report import error_out
from headway.services.jobs import log_stream
from tests.support.api.api_routes import scope_of
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading
from tests.support.waiting import eventually

LOG = "/api/v1/clusters/lab/jobs/7/log"


class Stream:
    """A log that the test writes; `None` is its end, an exception what went wrong."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for piece in pieces:
            self.queue.put_nowait(piece)

    async def __call__(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        while (piece := await self.queue.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece


async def answered(server: Server, path: str, secret: str, until: asyncio.Event) -> tuple[bytes, bool]:
    """(what came, whether it was said to be all); `until` is set when something came."""
    content, whole = b"", False

    async def send(message: Any) -> None:
        nonlocal content, whole
        if message["type"] == "http.response.body":
            content += message.get("body", b"")
            whole = not message.get("more_body", False)
            if content:
                until.set()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with asyncio.timeout(60):
        await server.app(scope_of("GET", path, secret, b""), receive, send)
    return content, whole


async def asked(
    server: Server, monkeypatch: pytest.MonkeyPatch, stream: Stream, *, stop: bool = False, query: str = "",
    came: asyncio.Event | None = None,
) -> tuple[bytes, bool]:  # fmt: skip
    """Follows the log as eve; `came` is set when she got something. With `stop` the server stops then."""
    await server.apply()
    server.backend.answers |= {"read": reading(builders.job(7, user="eve")), "machines": ()}
    monkeypatch.setattr(server.backend.jobs, "follow_log", stream)
    await server.store.people.set_role("eve", "member")
    _, secret = await server.store.tokens.create("eve")
    came = came or asyncio.Event()
    task = asyncio.create_task(answered(server, f"{LOG}?follow=true{query}", secret, came))
    if stop:
        await asyncio.wait_for(came.wait(), 60)
        server.state.live.stopping.set()
    return await task


async def test_server_stop_leaves_the_log_incomplete(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked(server, monkeypatch, Stream(b"one\n"), stop=True) == (b"one\n", False)


async def test_error_while_following_is_shown_and_leaves_the_log_incomplete(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(b"one\n", Unreachable("lab-head does not answer"))
    assert await asked(server, monkeypatch, stream) == (b"one\n--- lab-head does not answer ---\n", False)


async def test_revoked_access_leaves_the_followed_log_incomplete(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorized_stream, "RECHECK_S", 0.02)
    came = asyncio.Event()
    task = asyncio.create_task(asked(server, monkeypatch, Stream(b"one\n"), came=came))
    await asyncio.wait_for(came.wait(), 60)
    for token in await server.store.tokens.all("eve"):
        await server.store.tokens.delete(token.id)
    said, whole = await task
    assert said.startswith(b"one\n--- ")
    assert not whole


@pytest.mark.parametrize(("state", "query"), [("RUNNING", ""), ("COMPLETED", "?follow=true")])
async def test_missing_log_of_a_slow_head_is_a_404_and_no_broken_stream(
    server: Server, monkeypatch: pytest.MonkeyPatch, state: str, query: str
) -> None:
    monkeypatch.setattr(log_stream, "FIRST_PIECE_TIMEOUT_S", 0.0)
    await server.apply()
    server.backend.answers |= {"read": reading(builders.job(7, user="eve", state=state)), "machines": ()}
    stream = Stream()
    monkeypatch.setattr(server.backend.jobs, "follow_log", stream)
    await server.store.people.set_role("eve", "member")
    client = await server.client("eve", "member")
    asked_for = asyncio.create_task(client.get(f"{LOG}{query}"))
    await eventually(lambda: server.state.open_logs)
    await asyncio.sleep(0)  # the timeout of a followed log has passed
    stream.queue.put_nowait(NotFound("job 7 has not written its log"))
    answer = await asked_for
    assert (answer.status_code, answer.json()["detail"]) == (404, "job 7 has not written its log")


async def test_ended_log_is_complete(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await asked(server, monkeypatch, Stream(b"one\n", None)) == (b"one\n", True)


async def test_open_log_counts_against_the_limit_until_it_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(b"one\n")
    following = asyncio.create_task(asked(server, monkeypatch, stream))
    await eventually(lambda: server.state.open_logs)
    assert server.state.open_logs == {"eve": 1}
    stream.queue.put_nowait(None)
    assert await following == (b"one\n", True)
    assert server.state.open_logs == {}
    for last in (NotFound("no log"), ValueError("a bug")):
        await asyncio.gather(asked(server, monkeypatch, Stream(last)), return_exceptions=True)
        assert server.state.open_logs == {}
    following = asyncio.create_task(asked(server, monkeypatch, Stream(b"one\n")))
    await eventually(lambda: server.state.open_logs)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert server.state.open_logs == {}


async def test_log_frames_carry_offsets_and_mark_server_messages_and_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(b"--- pending ---\n", log_piece(b"one\n", 4), b"--- restarted ---\n", log_piece(b"new\n", 0), None)
    content, whole = await asked(server, monkeypatch, stream, query="&frames=1&start=4")
    assert whole
    assert list(frames([content])) == [
        ("at", b"4"), ("said", b"--- pending ---\n"), ("out", b"one\n"), ("said", b"--- restarted ---\n"), ("at", b"0"),
        ("out", b"new\n"), ("end", b""),
    ]  # fmt: skip


async def test_log_frames_end_with_error_or_without_end_when_the_server_stops(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, _ = await asked(server, monkeypatch, Stream(log_piece(b"one\n", 0), Refused("no")), query="&frames=1")
    assert [kind for kind, _ in frames([content])] == ["at", "out", "error"]
    content, _ = await asked(server, monkeypatch, Stream(log_piece(b"one\n", 0)), query="&frames=1", stop=True)
    assert [kind for kind, _ in frames([content])] == ["at", "out"]


# --- the client


class Sent(httpx.SyncByteStream):
    """What comes; with `breaks` the connection is lost after it."""

    def __init__(self, data: bytes, *, breaks: bool = False) -> None:
        self._data, self._breaks = data, breaks

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        if self._breaks:
            raise httpx.ReadError("reset by peer")


def framed(*said: tuple[str, bytes]) -> bytes:
    return b"".join(frame(*one) for one in said)


def client(*answers: Any) -> tuple[Client, list[str]]:
    """One that is answered so in turn: frames, a stream, an exception; and the questions that it asked."""
    asked: list[str] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        now = left.pop(0)
        if isinstance(now, Exception):
            raise now
        return httpx.Response(200, stream=now if isinstance(now, Sent) else Sent(framed(*now)))

    return Client("http://far", "t", transport=httpx.MockTransport(answer)), asked


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "RETRY_S", 0)


def test_followed_log_resumes_at_its_offset_after_a_server_restart() -> None:
    stopped = [("at", b"0"), ("said", b"--- pending ---\n"), ("out", b"one\ntw")]
    killed = Sent(framed(("at", b"6"), ("out", b"o\n")), breaks=True)
    away = httpx.ConnectError("refused")
    api, asked = client(
        stopped,
        away,
        away,
        killed,
        [("at", b"8"), ("at", b"0"), ("out", b"new\n")],
        [("at", b"4"), ("end", b"")],
    )
    log_text = b"".join(api.jobs.log("lab", 7, follow=True))
    assert log_text == b"--- pending ---\none\ntwo\nnew\n"
    assert [query.partition("start=")[2] for query in asked] == ["", "6", "6", "6", "8", "4"]


def test_waiting_message_is_not_repeated_after_reconnecting() -> None:
    waits = [("at", b"0"), ("said", b"--- pending ---\n")]
    api, _ = client(waits, waits, [*waits, ("out", b"one\n"), ("end", b"")])
    assert b"".join(api.jobs.log("lab", 7, follow=True)) == b"--- pending ---\none\n"


def test_unreachable_server_ends_a_followed_log_with_an_error() -> None:
    api, asked = client([("at", b"0"), ("out", b"one\n")], *[httpx.ConnectError("refused")] * 3)
    with pytest.raises(Unreachable):
        list(api.jobs.log("lab", 7, follow=True, patience_s=0))
    assert len(asked) == 1
    api, asked = client(httpx.ConnectError("refused"))
    with pytest.raises(Unreachable):
        list(api.jobs.log("lab", 7))
    assert len(asked) == 1


def test_interrupted_array_log_fails_instead_of_repeating_lines() -> None:
    api, asked = client([("said", b"[1] one\n")])
    read: list[bytes] = []
    with pytest.raises(Unreachable, match="the server stopped before the log ended"):
        read.extend(api.jobs.log("lab", 7, follow=True))
    assert len(asked) == 1
    api, _ = client([("said", b"[1] one\n"), ("said", b"[1] one\n"), ("end", b"")])
    assert b"".join(api.jobs.log("lab", 7, follow=True)) == b"[1] one\n[1] one\n"


def test_client_raises_errors_from_the_stream_without_retrying() -> None:
    why = error_out(NotAllowed("eve may not read it")).model_dump_json().encode()
    api, asked = client([("at", b"0"), ("out", b"one\n"), ("error", why)])
    with pytest.raises(NotAllowed, match="eve may not read it"):
        list(api.jobs.log("lab", 7, follow=True))
    assert len(asked) == 1


def test_client_refuses_a_log_without_frames_as_another_version() -> None:
    api, _ = client(Sent(b"loss 1.0\n"))
    with pytest.raises(Refused, match="this version of headway can't read"):
        list(api.jobs.log("lab", 7))
