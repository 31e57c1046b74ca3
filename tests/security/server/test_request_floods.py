"""No person, and no stranger, takes the whole server by many, large or slow requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.api.http import request_guard
from headway.domain.changeset import ChangeSet
from headway.services.access.concurrency_limits import (
    MAX_EVENT_STREAMS_PER_PERSON,
    MAX_PLANS_PER_ADMIN,
    MAX_PLANS_PER_PERSON,
)
from headway.services.request_limits import MOST_TOKENS
from headway.services.token_buckets import TokenBuckets
from headway.store.access import sessions
from tests.support.api.api_routes import scope_of
from tests.support.api.streamed_answer import streamed
from tests.support.servers.server_fakes import Server

API = "/api/v1"


async def test_member_cannot_open_any_number_of_event_streams(server: Server) -> None:
    await server.apply()
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    (operation, *_) = await server.store.operations.recent("lab")
    server.state.open_event_streams["eve"] = MAX_EVENT_STREAMS_PER_PERSON
    pages = ("/clusters/lab/live", "/clusters/lab/queue/live", f"/operations/{operation.id}/live")
    for path in (f"{API}/events", f"{API}/clusters/lab/events", f"{API}/operations/{operation.id}/events", *pages):
        assert (await eve.get(path)).status_code == 429, path
    assert (await bob.get(f"{API}/operations/{operation.id}/events")).status_code == 200
    assert "bob" not in server.state.open_event_streams  # the stream has ended
    _, secret = await server.store.tokens.create("eve")
    server.state.open_event_streams["eve"] -= 1
    begun = asyncio.Event()
    task = asyncio.create_task(streamed(server, f"{API}/events", secret, begun))
    async with asyncio.timeout(60):  # the task may have failed
        await begun.wait()
    assert server.state.open_event_streams["eve"] == MAX_EVENT_STREAMS_PER_PERSON
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert server.state.open_event_streams["eve"] == MAX_EVENT_STREAMS_PER_PERSON - 1


async def test_member_cannot_send_any_number_of_requests(server: Server) -> None:
    server.state.request_buckets = TokenBuckets(3)
    eve, bob, ann = [await server.client(*who) for who in (("eve", "member"), ("bob", "viewer"), ("ann", "admin"))]
    for path in (f"{API}/me", "/", f"{API}/clusters"):  # pages and API count together
        assert (await eve.get(path)).status_code == 200, path
    refused = await eve.get(f"{API}/me")
    assert (refused.status_code, refused.json()["kind"], refused.headers["retry-after"]) == (
        429,
        "too_many_at_once",
        "20",
    )
    assert refused.json()["detail"] == "eve sends more than 3 requests a minute"
    assert (await bob.get(f"{API}/me")).status_code == 200
    assert {(await ann.get(f"{API}/me")).status_code for _ in range(9)} == {200}
    server.state.clock.now += 20  # type: ignore[attr-defined]
    assert (await eve.get(f"{API}/me")).status_code == 200


async def test_large_request_over_the_limit_is_told_when_to_try_again(server: Server) -> None:
    eve = await server.client("eve", "member")
    server.state.request_buckets = TokenBuckets(1)
    assert (await eve.get(f"{API}/me")).status_code == 200
    body = b'{"text": "' + b"x" * request_guard.LARGE_BODY + b'"}'
    for headers in ({}, {"idempotency-key": "k"}):
        refused = await eve.post(f"{API}/plan", content=body, headers={"content-type": "application/json", **headers})
        assert (refused.status_code, refused.json()["kind"]) == (429, "too_many_at_once"), headers
        assert refused.headers["retry-after"] == "60"


async def test_person_cannot_create_any_number_of_links_and_tokens(server: Server) -> None:
    server.state.link_buckets = TokenBuckets(1)
    ann = await server.client("ann")
    assert [(await ann.post(f"{API}/signin-links")).status_code for _ in range(2)] == [201, 429]
    for _ in range(MOST_TOKENS - len(await server.store.tokens.all("ann"))):
        await server.store.tokens.create("ann", days=1)
    refused = await ann.post(f"{API}/tokens", json={"label": "one more"})
    assert (refused.status_code, refused.json()["detail"]) == (400, f"ann has {MOST_TOKENS} tokens")
    assert (await ann.post(f"{API}/tokens", json={"person": "bob", "role": "member"})).status_code == 201
    server.state.clock.now += 86_401  # type: ignore[attr-defined]
    assert (await ann.post(f"{API}/tokens", json={"label": "one more"})).status_code == 201


async def test_body_that_comes_too_slowly_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_guard, "BODY_S", 0.05)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(60):
        await server.app(scope_of("POST", f"{API}/plan", "", b"x" * 100), receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_limits_stored_unfinished_oidc_sign_ins(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OIDC_FLOWS_KEPT", 3)
    for number in range(8):
        server.state.clock.now += 1  # type: ignore[attr-defined]
        await server.store.sessions.start_oidc_flow(f"s{number}", "n", "v")
    found = [await server.store.sessions.finish_oidc_flow(f"s{number}") for number in range(8)]
    assert [one is not None for one in found] == [False] * 5 + [True] * 3


async def test_limits_endless_bodies_of_requests_with_idempotency_keys(server: Server) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 2**20
            yield b" " * 2**20

    client = await server.client("ann", "admin", **{"idempotency-key": "k"})
    answer = await client.post(f"{API}/plan", content=endless())
    assert answer.status_code == 413, answer.text
    assert sent < 20 * 2**20
    again = await client.post(f"{API}/signin-links")
    assert again.status_code == 201  # the key is free


async def test_large_body_is_read_only_from_a_signed_in_person(server: Server) -> None:
    body = (
        b'{"text": "' + b"x" * request_guard.LARGE_BODY + b'", "spec": {"name": "lab", "plan": "h100-8", "nodes": 4}}'
    )
    headers = {"content-type": "application/json"}
    for client in (server.anonymous(), server.anonymous(authorization="Bearer hw_guess")):
        answer = await client.post(f"{API}/plan", content=body, headers=headers)
        assert answer.status_code == 401, answer.text
    server.backend.answers["plan"] = ChangeSet("lab", ())
    ann = await server.client("ann")
    assert (await ann.post(f"{API}/plan", content=body, headers=headers)).status_code == 200
    assert not server.state.large_requests


@pytest.mark.parametrize(("role", "limit"), [("member", MAX_PLANS_PER_PERSON), ("admin", MAX_PLANS_PER_ADMIN)])
async def test_nobody_can_plan_any_number_of_files_at_once(server: Server, role: str, limit: int) -> None:
    plans, go = asyncio.Event(), asyncio.Event()
    most = 0

    async def plan(_: Any) -> ChangeSet:
        nonlocal most
        most = max(most, server.state.running_plans["eve"])
        if server.state.running_plans["eve"] == limit:
            plans.set()
        await go.wait()
        return ChangeSet("lab", ())

    server.backend.answers["plan"] = plan
    eve = await server.client("eve", role)
    body = {"text": "", "spec": {"name": "lab", "plan": "h100-8", "nodes": 4}}
    running = [asyncio.create_task(eve.post(f"{API}/plan", json=body)) for _ in range(limit)]
    await asyncio.wait_for(plans.wait(), 60)
    refused = await eve.post(f"{API}/plan", json=body)
    assert refused.status_code == 429, refused.text
    go.set()
    assert [answer.status_code for answer in await asyncio.gather(*running)] == [200] * limit
    assert most == limit


async def test_huge_plan_is_refused_before_its_entries_are_checked(server: Server) -> None:
    eve = await server.client("eve", "member")
    teams = {f"t{i}": {"users": [f"u{i}"]} for i in range(100_000)}
    answer = await eve.post(f"{API}/plan", json={"text": "", "spec": {"name": "lab", "teams": teams}})
    assert answer.status_code == 422
    assert "has more than 50000 entries" in answer.text
    assert len(answer.text) < 2000
