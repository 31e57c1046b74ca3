"""Terminals run a shell on the login node or in a running job, for its own person, with keys and sizes in further requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.jobs.remote.interactive_command import keys_frame, size_frame
from headway.schemas.submission.stream_frames import frames
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading
from tests.support.waiting import eventually

KEY = "0123456789abcdef" * 2
PATH = "/api/v1/clusters/lab/terminals"
RUNNING = builders.job(12, "RUNNING", user="eve", nodes=("lab-1-1", "lab-1-2"), name="train")


async def said(*pieces: tuple[str, bytes]) -> AsyncIterator[tuple[str, bytes]]:
    for piece in pieces:
        yield piece


async def echo(feed: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    async for piece in feed:
        yield "out", piece
    yield "code", b"0"


async def test_login_shell_runs_as_the_person_and_not_as_root(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_on_terminal"] = lambda *_: said(("out", b"$ "), ("code", b"0"))
    ann, eve = await server.client(), await server.client("eve", "member")
    answer = await ann.post(PATH, json={"input": KEY, "rows": 40, "columns": 120})
    assert list(frames([answer.content])) == [("out", b"$ "), ("code", b"0")]
    assert (await eve.post(PATH, json={"input": KEY})).status_code == 200
    calls = server.backend.named("run_on_terminal")
    assert [(call[2], call[3]) for call in calls] == [("ann", (40, 120)), ("eve", (24, 80))]
    assert calls[0][1][:2] == ("env", "TERM=xterm-256color")
    assert "srun" not in calls[0][1]
    assert (await eve.post(PATH, json={"input": KEY, "user": "ann"})).status_code == 403
    assert (await ann.post(PATH, json={"input": "guess"})).status_code == 422


async def test_shell_in_a_job_is_a_step_of_its_user_on_the_chosen_node(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"run_on_terminal": lambda *_: said(("code", b"0")), "read": reading(RUNNING)}
    server.backend.answers |= {"job": RUNNING, "machines": ()}
    ann, eve = await server.client(), await server.client("eve", "member")
    assert (await eve.post(PATH, json={"input": KEY, "job": "12", "node": "lab-1-2"})).status_code == 200
    assert (await ann.post(PATH, json={"input": KEY, "job": "12"})).status_code == 200
    first, second = server.backend.named("run_on_terminal")
    assert [call[2] for call in (first, second)] == ["eve", "eve"]
    assert {"srun", "--jobid=12", "--overlap", "--nodelist=lab-1-2", "--pty"} <= set(first[1])
    assert not [word for word in second[1] if word.startswith("--nodelist")]
    other = await eve.post(PATH, json={"input": KEY, "job": "12", "node": "lab-1-3"})
    assert (other.status_code, other.json()["detail"]) == (400, "job 12 does not run on lab-1-3")


async def test_terminal_in_a_job_is_for_its_owner(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(RUNNING), "job": RUNNING, "machines": ()}
    bob = await server.client("bob", "member")
    refused = await bob.post(PATH, json={"input": KEY, "job": "12"})
    assert (refused.status_code, refused.json()["kind"]) == (403, "not_allowed")
    assert not server.backend.named("run_on_terminal")


async def test_job_that_has_ended_has_no_terminal(server: Server) -> None:
    await server.apply()
    ended = builders.job(12, "COMPLETED", user="eve")
    server.backend.answers |= {"read": reading(ended), "job": ended, "machines": ()}
    eve = await server.client("eve", "member")
    late = await eve.post(PATH, json={"input": KEY, "job": "12"})
    assert (late.status_code, late.json()["detail"]) == (409, "job 12 does not run: COMPLETED")
    assert not server.backend.named("run_on_terminal")


async def test_keys_and_sizes_arrive_in_order_and_only_from_the_own_person(server: Server) -> None:
    await server.apply()
    server.backend.answers["run_on_terminal"] = lambda _cluster, _argv, _user, _size, feed: echo(feed)
    ann, bob = await server.client(), await server.client("bob", "member")
    running = asyncio.create_task(ann.post(PATH, json={"input": KEY}))
    await eventually(lambda: server.state.command_inputs)
    assert (await bob.post(f"{PATH}/{KEY}/input", content=b"rm -r .\r")).status_code == 404
    assert (await bob.put(f"{PATH}/{KEY}/size", json={"rows": 1, "columns": 1})).status_code == 404
    # The input of a command is another one, even with the same id.
    assert (await ann.post(f"/api/v1/clusters/lab/commands/{KEY}/input", content=b"x")).status_code == 404
    assert (await ann.post(PATH, json={"input": KEY})).json()["detail"] == "two terminals can't have the same id"
    assert (await ann.post(f"{PATH}/{KEY}/input", content=b"ls\r")).status_code == 204
    assert (await ann.put(f"{PATH}/{KEY}/size", json={"rows": 50, "columns": 100})).status_code == 204
    assert (await ann.put(f"{PATH}/{KEY}/size", json={"rows": 0, "columns": 100})).status_code == 422
    assert (await ann.post(f"{PATH}/{KEY}/input", content=b"")).status_code == 204
    out = b"".join(data for kind, data in frames([(await running).content]) if kind == "out")
    assert out == keys_frame(b"ls\r") + size_frame(50, 100)
    assert (await ann.post(f"{PATH}/{KEY}/input", content=b"x")).status_code == 404


async def test_opening_is_in_the_audit_trail_and_keys_are_not(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"run_on_terminal": lambda *_: said(("code", b"0")), "read": reading(RUNNING)}
    server.backend.answers |= {"job": RUNNING, "machines": ()}
    eve, ann = await server.client("eve", "member"), await server.client()
    await eve.post(PATH, json={"input": KEY, "job": "12"})
    (line,) = (await ann.get("/api/v1/audit", params={"action": "terminal"})).json()["lines"]
    assert (line["person"], line["target"]) == ("eve", "lab")
    assert line["detail"]["job"] == "12"
    assert line["detail"]["user"] == "eve"


async def test_viewers_open_no_terminal(server: Server) -> None:
    await server.apply()
    client = await server.client("vic", "viewer")
    assert (await client.post(PATH, json={"input": KEY})).status_code == 403
    assert (await client.get("/clusters/lab/terminal")).status_code == 403


async def test_keys_reach_the_terminal_of_the_named_cluster_only(server: Server) -> None:
    await server.apply()
    await server.apply("rack")
    server.backend.answers["run_on_terminal"] = lambda _cluster, _argv, _user, _size, feed: echo(feed)
    ann = await server.client()
    running = asyncio.create_task(ann.post(PATH, json={"input": KEY}))
    await eventually(lambda: server.state.command_inputs)
    rack = PATH.replace("/lab/", "/rack/")
    assert (await ann.post(f"{rack}/{KEY}/input", content=b"x")).status_code == 404
    assert (await ann.put(f"{rack}/{KEY}/size", json={"rows": 50, "columns": 100})).status_code == 404
    assert (await ann.post(f"{PATH}/{KEY}/input", content=b"")).status_code == 204
    await running


async def test_terminal_in_a_job_of_another_ends_when_its_person_is_no_admin_any_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.api.http.authorized_stream.RECHECK_S", 0.01)
    await server.apply(users=["ann", "eve"])
    server.backend.answers |= {"read": reading(RUNNING), "job": RUNNING, "machines": ()}
    server.backend.answers["run_on_terminal"] = lambda _cluster, _argv, _user, _size, feed: echo(feed)
    ann = await server.client()
    running = asyncio.create_task(ann.post(PATH, json={"input": KEY, "job": "12"}))
    await eventually(lambda: server.state.command_inputs)
    await server.store.people.set_role("ann", "member")
    *_, (kind, data) = frames([(await asyncio.wait_for(running, 60)).content])
    assert kind == "error"
    assert b"ann may not use a terminal in job 12" in data
