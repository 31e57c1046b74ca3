"""A POST that is sent again with the same Idempotency-Key is not carried out again."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from headway.api.http.idempotency import RESUMABLE_PATHS
from headway.errors import Unanswered, Unreachable
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.token_buckets import TokenBuckets
from tests.support.servers.interrupted_request import KEY, cut_off
from tests.support.servers.server_fakes import Server

JOBS = "/api/v1/clusters/lab/jobs"


def submitted(server: Server) -> int:
    return sum(name == "submit" for name, _ in server.backend.calls)


async def ready(server: Server) -> Any:
    await server.apply()
    server.backend.answers["submit"] = SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve")
    return await server.client("eve", "member")


async def test_repeated_request_with_same_key_replays_the_first_answer(server: Server) -> None:
    eve = await ready(server)
    first = await eve.post(JOBS, json={}, headers=KEY)
    server.backend.answers["submit"] = SubmitOut(job_id=6, cluster="lab", user="eve", workdir="/home/eve")
    again = await eve.post(JOBS, json={}, headers=KEY)
    assert (first.status_code, again.status_code, submitted(server)) == (201, 201, 1)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert (await eve.post(JOBS, json={}, headers={"idempotency-key": "other"})).json()["job_id"] == 6
    assert (await eve.post(JOBS, json={})).json()["job_id"] == 6


async def test_refuses_same_key_with_another_body_or_path(server: Server) -> None:
    eve = await ready(server)
    await eve.post(JOBS, json={}, headers=KEY)
    other = await eve.post(JOBS, json={"script": "#!/bin/sh"}, headers=KEY)
    elsewhere = await eve.post("/api/v1/tokens", json={}, headers=KEY)
    assert (other.status_code, other.json()["kind"], elsewhere.status_code) == (409, "conflict", 409)
    assert submitted(server) == 1


class RefusesOnce(TokenBuckets):
    """Refuses the first request, as if the person could send another one a moment later."""

    refused = False

    def take(self, *_: Any) -> int:
        now, self.refused = not self.refused, True
        return 20 if now else 0


async def test_request_that_is_refused_before_its_key_is_read_is_not_carried_out_without_the_key(
    server: Server,
) -> None:
    eve = await ready(server)
    server.state.request_buckets = RefusesOnce(1)
    refused = await eve.post(JOBS, json={}, headers=KEY)
    assert (refused.status_code, refused.json()["kind"]) == (429, "too_many_at_once")
    assert refused.headers["retry-after"] == "20"
    assert submitted(server) == 0
    assert [(await eve.post(JOBS, json={}, headers=KEY)).status_code for _ in range(2)] == [201, 201]
    assert submitted(server) == 1


async def test_request_with_a_key_counts_once(server: Server) -> None:
    eve = await ready(server)
    server.state.request_buckets = TokenBuckets(2)
    answers = [await eve.post(JOBS, json={}, headers={"idempotency-key": key}) for key in "abc"]
    assert [answer.status_code for answer in answers] == [201, 201, 429]


async def test_idempotency_key_is_per_person_and_expires_after_a_day(server: Server) -> None:
    eve = await ready(server)
    await eve.post(JOBS, json={}, headers=KEY)
    await (await server.client("bob", "member")).post(JOBS, json={}, headers=KEY)
    assert submitted(server) == 2
    server.state.clock.now += 86401  # type: ignore[attr-defined]
    await eve.post(JOBS, json={}, headers=KEY)
    assert submitted(server) == 3


async def test_retries_undelivered_requests_but_not_unanswered_ones(server: Server) -> None:
    eve = await ready(server)
    server.backend.answers["submit"] = Unreachable("the head is away")
    assert (await eve.post(JOBS, json={}, headers=KEY)).status_code == 503
    server.backend.answers["submit"] = Unanswered("the line broke")
    assert (await eve.post(JOBS, json={}, headers=KEY)).status_code == 503
    server.backend.answers["submit"] = SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve")
    lost = await eve.post(JOBS, json={}, headers=KEY)
    assert (lost.status_code, lost.json()["detail"]) == (503, "the line broke")
    assert submitted(server) == 2


async def test_concurrent_requests_with_one_key_run_once(server: Server) -> None:
    eve = await ready(server)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slowly(*_: Any) -> SubmitOut:
        begun.set()
        await go.wait()
        return SubmitOut(job_id=5, cluster="lab", user="eve", workdir="/home/eve")

    server.backend.answers["submit"] = slowly
    first = asyncio.create_task(eve.post(JOBS, json={}, headers=KEY))
    await begun.wait()
    second = await eve.post(JOBS, json={}, headers=KEY)
    go.set()
    assert (second.status_code, (await first).status_code, submitted(server)) == (409, 201, 1)
    assert "is running" in second.json()["detail"]


async def test_replays_a_created_token_without_storing_it_in_clear_text(server: Server) -> None:
    eve = await ready(server)
    first = await eve.post("/api/v1/tokens", json={}, headers=KEY)
    again = await eve.post("/api/v1/tokens", json={}, headers=KEY)
    token = first.json()["token"]
    assert again.json()["token"] == token
    for file in server.state.settings.state_dir.glob("headway.db*"):
        assert token.encode() not in file.read_bytes()


async def test_refuses_keys_without_sign_in_and_overlong_keys(server: Server) -> None:
    assert (await server.anonymous().post(JOBS, json={}, headers=KEY)).status_code == 401
    eve = await ready(server)
    assert (await eve.post(JOBS, json={}, headers={"idempotency-key": "x" * 300})).status_code == 409


async def test_repeated_request_returns_the_operation_of_a_killed_server(server: Server) -> None:
    await server.apply()
    ann, path = await server.client(), "/api/v1/clusters/lab/down"
    await cut_off(server, ann, path)
    again = await ann.post(path, json={}, headers=KEY)
    third = await ann.post(path, json={}, headers=KEY)
    queued = [one.id for one in await server.store.operations.recent("lab") if one.kind == "down"]
    assert (again.status_code, again.json()["id"], third.json()["id"]) == (202, *queued, *queued)
    assert "key" not in again.json()
    noted = [line.detail for line in await server.store.audit.search() if line.action == "down"]
    assert [line["operation"] for line in noted] == queued


async def test_repeated_request_completes_a_missing_audit_entry(server: Server) -> None:
    await server.apply()
    ann, path, note = await server.client(), "/api/v1/clusters/lab/down", server.store.audit.record

    async def never(*_: Any, **__: Any) -> None:
        raise asyncio.CancelledError

    server.store.audit.record = never  # type: ignore[method-assign]
    await cut_off(server, ann, path)
    server.store.audit.record = note  # type: ignore[method-assign]
    for _ in range(2):
        assert (await ann.post(path, json={}, headers=KEY)).status_code == 202
    assert len([line for line in await server.store.audit.search() if line.action == "down"]) == 1


async def test_interrupted_submission_is_resent_with_the_same_tag(server: Server) -> None:
    eve = await ready(server)
    await cut_off(server, eve, JOBS)
    again = await eve.post(JOBS, json={}, headers=KEY)
    assert (again.status_code, again.json()["job_id"], submitted(server)) == (201, 5, 2)
    assert len(server.backend.tags) == 2
    assert len(set(server.backend.tags)) == 1
    noted = [line for line in await server.store.audit.search() if line.action == "submit"]
    assert len(noted) == 1


async def test_refuses_to_repeat_interrupted_requests_that_cannot_be_resumed(server: Server) -> None:
    eve = await ready(server)
    await cut_off(server, eve, "/api/v1/tokens")
    again = await eve.post("/api/v1/tokens", json={}, headers=KEY)
    assert again.status_code == 409
    assert "server stopped during it" in again.json()["detail"]


def test_resumable_paths_cover_every_endpoint_that_queues_operations(server: Server) -> None:
    """The list of addresses is by hand; operations are answered with 202 and made nowhere else."""
    paths = server.app.openapi()["paths"]
    queues = {path for path, ways in paths.items() if "202" in ways.get("post", {}).get("responses", {})}
    assert len(queues) > 8
    lost = {path for path in queues if not RESUMABLE_PATHS.fullmatch(re.sub(r"\{\w+\}", "7", path))}
    assert {path.rpartition("/")[2] for path in lost} == {"reboot", "test"}  # they end with the server that does them
