"""Every error is a problem document whatever its cause, and long answers are compressed."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

import headway.cluster.remote_steps  # noqa: F401  (an error of its own)
from headway.api.docs_page import PROBLEMS
from headway.api.http.compression import accepts_gzip
from headway.errors import HeadwayError
from headway.schemas.base import PROBLEM_JSON, Problem
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "kind"),
    [
        ("GET", "/api/v1/nothing", {}, 404, "not_found"),
        ("GET", "/api/v2/clusters", {}, 404, "not_found"),
        ("GET", "/api/v1/clusters/none/jobs", {}, 404, "not_found"),
        ("PUT", "/api/v1/clusters", {}, 405, "refused"),
        ("PATCH", "/api/v1/clusters/lab/jobs/1", {}, 405, "refused"),
        ("POST", "/api/v1/plan", {"content": b"{"}, 422, "refused"),
        ("POST", "/api/v1/plan", {"json": {"text": 1}}, 422, "refused"),
        ("POST", "/api/v1/plan", {"content": b"x", "headers": {"content-length": "99999999"}}, 413, "refused"),
        ("POST", "/api/v1/plan", {"content": b"x", "headers": {"content-length": "9" * 30}}, 413, "refused"),
        ("GET", "/api/v1/clusters/lab/jobs/abc", {}, 422, "refused"),
        ("DELETE", "/api/v1/clusters/lab/jobs/8_3", {}, 422, "refused"),  # a task: no number of a job, nor 83
        ("POST", "/api/v1/clusters/lab/jobs/+8/requeue", {}, 422, "refused"),
        ("GET", f"/api/v1/clusters/lab/jobs/{10**30}/runs", {}, 422, "refused"),
        ("GET", "/api/v1/clusters/lab/jobs?limit=0", {}, 422, "refused"),
        ("GET", "/api/v1/clusters/lab/jobs?cursor=x", {}, 400, "refused"),
        ("GET", "/api/v1/me", {"headers": {"authorization": "Bearer none"}}, 401, "not_signed_in"),
        ("GET", "/api/v1/me", {"headers": {"host": "elsewhere.example"}}, 400, "refused"),
    ],
)
async def test_every_error_is_a_problem_document(
    server: Server, method: str, path: str, more: dict[str, Any], status: int, kind: str
) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(builders.job(1)), "machines": ()}
    client = await server.client()
    answer = await client.request(method, path, **more)
    problem = Problem.model_validate(answer.json())
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM_JSON)
    assert (problem.status, problem.kind) == (status, kind)
    assert problem.detail
    assert problem.type == f"/api/v1/docs#problem-{kind}"


async def test_api_docs_explain_every_problem_kind(server: Server) -> None:
    def kinds(one: type[HeadwayError]) -> set[str]:
        return {one.kind}.union(*(kinds(sub) for sub in one.__subclasses__()))

    assert kinds(HeadwayError) <= PROBLEMS.keys()
    told = (await server.anonymous().get("/api/v1/docs")).text
    assert all(f"id='problem-{kind}'" in told for kind in PROBLEMS)


async def test_compresses_long_responses_but_not_streams(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "read": reading(builders.job(1, user="ann")), "machines": (), "follow_log": [b"loss 1.0\n" * 1000],
    }  # fmt: skip
    client = await server.client()
    for path in ("/api/v1/openapi.json", "/api/v1/docs"):
        async with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in answer.headers["vary"].lower()
        assert len(raw) < len(gzip.decompress(raw)) / 4
        plain = await client.get(path, headers={"accept-encoding": "identity"})
        assert plain.content == gzip.decompress(raw)
    log = await client.get("/api/v1/clusters/lab/jobs/1/log", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in log.headers
    short = await client.get("/api/v1/me", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in short.headers


@pytest.mark.parametrize(
    ("header", "takes"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("", False), ("gzip;q=0", False), ("gzip; q=0.0, br", False)],
)
def test_accepts_gzip_parses_accept_encoding(header: str, takes: bool) -> None:
    assert accepts_gzip(header) is takes
