"""Interactive commands stream output in frames and accept input only from their own person; concurrent commands and
uploads are limited."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headway.domain.cluster import Cluster
from headway.errors import Unreachable
from headway.schemas.base import ErrorOut
from headway.schemas.submission.stream_frames import frames
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.access.concurrency_limits import MAX_COMMANDS_PER_PERSON, MAX_OPEN_LOGS_PER_PERSON
from headway.services.jobs.bundles import MAX_ARCHIVES_IN_MEMORY, MAX_ARCHIVES_OF_PERSON
from headway.web.rendering import STATIC
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading
from tests.support.waiting import eventually

KEY = "0123456789abcdef" * 2
LOG_PAGE = STATIC / "pages/log.js"
PASSING = LOG_PAGE.read_text().partition("const PASSING = ")[2].partition(";")[0]
PATH = "/api/v1/clusters/lab/commands"


async def test_command_output_streams_in_frames_as_the_requested_user(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_interactive"] = lambda *_: said(("out", b"\xff"), ("err", b"e"), ("code", b"3"))
    ann, eve = await server.client(), await server.client("eve", "member")
    answer = await ann.post(PATH, json={"argv": ["id"]})
    assert list(frames([answer.content])) == [("out", b"\xff"), ("err", b"e"), ("code", b"3")]
    assert (await eve.post(PATH, json={"argv": ["id"], "user": "eve"})).status_code == 200
    assert (await eve.post(PATH, json={"argv": ["id"]})).status_code == 200
    assert [call[2] for call in server.backend.named("run_interactive")] == ["root", "eve", "eve"]
    assert (await eve.post(PATH, json={"argv": ["id"], "user": "root"})).status_code == 403


async def test_error_during_a_command_is_its_last_frame(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_interactive"] = lambda *_: said(("out", b"x"), Unreachable("the line broke"))
    answer = await (await server.client()).post(PATH, json={"argv": ["id"]})
    (_, (kind, data)) = frames([answer.content])
    assert (kind, ErrorOut.model_validate_json(data).message) == ("error", "the line broke")


async def test_command_input_is_accepted_only_from_its_own_person(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_interactive"] = lambda _cluster, _argv, _user, feed: echo(feed)
    ann, bob = await server.client(), await server.client("bob")
    running = asyncio.create_task(ann.post(PATH, json={"argv": ["cat"], "input": KEY}))
    await eventually(lambda: server.state.command_inputs)
    assert (await bob.post(f"{PATH}/{KEY}/input", content=b"mine")).status_code == 404
    for piece in (b"one", b"two", b""):
        assert (await ann.post(f"{PATH}/{KEY}/input", content=piece)).status_code == 204
    assert list(frames([(await running).content])) == [("out", b"one"), ("out", b"two"), ("code", b"0")]
    assert server.state.command_inputs == {}
    assert (await ann.post(f"{PATH}/{KEY}/input", content=b"late")).status_code == 404


@pytest.fixture
async def deaf(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """ann, whose command under KEY reads nothing, and who brings it more than waits for one."""
    monkeypatch.setattr("headway.services.jobs.exec_commands.RECHECK_S", 0.01)
    await server.apply()
    go = asyncio.Event()

    async def hears(*_: Any) -> AsyncIterator[tuple[str, bytes]]:
        await go.wait()
        yield "code", b"0"

    server.backend.answers["run_interactive"] = hears
    ann = await server.client()
    running = asyncio.create_task(ann.post(PATH, json={"argv": ["sleep"], "input": KEY}))
    await eventually(lambda: server.state.command_inputs)
    given = next(iter(server.state.command_inputs.values()))
    while not given.queue.full():
        await ann.post(f"{PATH}/{KEY}/input", content=b"x")
    yield ann
    go.set()
    await running


async def test_command_input_holds_one_pending_piece_and_refuses_a_second(
    server: Server, deaf: httpx.AsyncClient
) -> None:
    waits = asyncio.create_task(deaf.post(f"{PATH}/{KEY}/input", content=b"x" * 1024 * 1024))
    given = next(iter(server.state.command_inputs.values()))
    await eventually(given.sending.locked)
    second = await deaf.post(f"{PATH}/{KEY}/input", content=never())
    assert (second.status_code, second.json()["kind"]) == (429, "too_many_at_once")
    given.queue.get_nowait()
    assert (await waits).status_code == 204
    large = await deaf.post(f"{PATH}/{KEY}/input", content=b"x" * (1024 * 1024 + 1))
    assert (large.status_code, "more than 1 MiB" in large.json()["detail"]) == (400, True)


async def test_disconnected_client_releases_its_pending_input(
    server: Server, deaf: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, gone = next(iter(server.state.command_inputs.values())), asyncio.Event()

    async def is_disconnected(_: Any) -> bool:
        return gone.is_set()

    monkeypatch.setattr("fastapi.Request.is_disconnected", is_disconnected)
    waits = asyncio.create_task(deaf.post(f"{PATH}/{KEY}/input", content=b"x"))
    await eventually(given.sending.locked)
    gone.set()
    assert (await waits).status_code == 404
    assert not given.sending.locked()


async def never() -> AsyncIterator[bytes]:
    raise AssertionError("it is read")
    yield b""


async def test_limits_concurrent_commands_per_person(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_interactive"] = lambda *_: said(("code", b"0"))
    eve = await server.client("eve", "member")
    server.state.running_commands["eve"] = MAX_COMMANDS_PER_PERSON
    ask = {"argv": ["id"], "user": "eve"}
    assert (await eve.post(PATH, json=ask)).status_code == 429
    server.state.running_commands["eve"] -= 1
    for _ in range(2):  # what has ended holds no place
        assert (await eve.post(PATH, json=ask)).status_code == 200
    assert server.state.running_commands["eve"] == MAX_COMMANDS_PER_PERSON - 1


async def said(*pieces: Any) -> AsyncIterator[tuple[str, bytes]]:
    for piece in pieces:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


async def echo(feed: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    async for piece in feed:
        yield "out", piece
    yield "code", b"0"


async def test_refuses_cluster_requests_above_the_concurrency_limit(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "read": reading(builders.job(7, user="eve")),
        "machines": (),
        "job": builders.job(7, user="eve"),
    }
    eve, lab = await server.client("eve", "member"), "/api/v1/clusters/lab"
    server.state.running_commands["eve"], server.state.open_logs["eve"] = (
        MAX_COMMANDS_PER_PERSON,
        MAX_OPEN_LOGS_PER_PERSON,
    )
    calls = [
        eve.post(f"{lab}/run", json={"argv": ["true"]}),
        eve.post(f"{lab}/jobs", json={"script": "#!/bin/sh\n"}),
        eve.post(f"{lab}/pipelines", json={"document": {"name": "p", "steps": {"a": {"run": "true"}}}}),
        eve.put(f"{lab}/bundles/{'a' * 64}", content=b"x"),
        eve.get(f"{lab}/bundles/{'a' * 64}"),
        eve.get(f"{lab}/jobs/7/log?follow=true"),
        eve.get(f"{lab}/jobs/7/log"),
        eve.get(f"{lab}/jobs/7/log/part"),
        eve.get(f"{lab}/jobs/7/log/search?q=x"),
        eve.get(f"{lab}/jobs/7/script"),
        eve.get(f"{lab}/jobs/7/tasks"),
    ]
    for call in calls:
        answer = await call
        assert (answer.status_code, "already" in answer.json()["detail"]) == (429, True), answer.text
        assert answer.json()["kind"] in PASSING, "else a page that follows a log gives up"
    assert (server.state.running_commands["eve"], server.state.open_logs["eve"]) == (
        MAX_COMMANDS_PER_PERSON,
        MAX_OPEN_LOGS_PER_PERSON,
    )


async def test_request_refused_with_429_can_be_retried_under_its_key(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"submit": SubmitOut(job_id=7, cluster="lab", user="eve", workdir="~"), "read": reading()}
    eve, key = await server.client("eve", "member"), {"idempotency-key": "4f1c"}
    server.state.running_commands["eve"] = MAX_COMMANDS_PER_PERSON
    assert (await eve.post("/api/v1/clusters/lab/jobs", json={}, headers=key)).status_code == 429
    server.state.running_commands["eve"] = 0
    assert (await eve.post("/api/v1/clusters/lab/jobs", json={}, headers=key)).json()["job_id"] == 7


async def test_limits_bundle_uploads_in_memory_per_person_and_cluster(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lab", "sky"):
        await server.apply(name)
    go, under_way = asyncio.Event(), Counter[str]()

    async def slowly(cluster: Cluster, user: str, *_: Any) -> bool:
        under_way.update([user, cluster.name])
        await go.wait()
        return True

    server.backend.answers["store_bundle"] = slowly
    eve, bob, dan = [await server.client(name, "member") for name in ("eve", "bob", "dan")]

    def put(client: httpx.AsyncClient, n: int, cluster: str = "lab") -> asyncio.Task[httpx.Response]:
        path = f"/api/v1/clusters/{cluster}/bundles/{n:064}"
        return asyncio.create_task(client.put(path, content=b"x" * 1000))

    async def until(**many: int) -> None:
        await eventually(lambda: {name: under_way[name] for name in many} == many)

    hanging = [put(eve, n) for n in range(MAX_ARCHIVES_OF_PERSON + 1)]
    await until(eve=MAX_ARCHIVES_OF_PERSON)
    hanging += [put(bob, n) for n in range(MAX_ARCHIVES_OF_PERSON)]  # the cluster's places are taken now
    await until(bob=MAX_ARCHIVES_OF_PERSON, lab=MAX_ARCHIVES_IN_MEMORY)
    hanging.append(put(eve, 0, "sky"))  # but not another one's
    await until(sky=1)
    monkeypatch.setattr("headway.services.jobs.bundles.TURN_TIMEOUT_S", 0.01)
    late = await put(dan, 0)
    assert (late.status_code, late.json()["kind"]) == (429, "too_many_at_once")
    assert under_way["lab"] == MAX_ARCHIVES_IN_MEMORY
    go.set()
    assert {(await one).json()["present"] for one in hanging} == {True}
    assert (await put(dan, 0)).json()["present"]
    assert not server.state.running_commands
    server.state.running_commands["eve"] = MAX_COMMANDS_PER_PERSON
    assert (await put(eve, 0)).status_code == 429
