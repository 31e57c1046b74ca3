"""A cluster whose file is from a Git commit: operation, cluster and audit trail name the commit."""

from __future__ import annotations

from typing import Any

import pytest

from headway.domain.changeset import Disturbs
from tests.support.servers.server_fakes import Server, changes, document

ORIGIN = {"url": "https://example.org/clusters.git", "ref": "main", "commit": "5" * 40, "path": "lab.yaml"}


async def _apply(server: Server, origin: dict[str, Any] | None, **spec: Any) -> dict[str, Any]:
    server.backend.answers.setdefault("apply", None)
    server.backend.answers.setdefault("plan", changes(Disturbs.NOTHING))
    ann = await server.client("ann")
    body = {"document": {**document(**spec).model_dump(), "origin": origin}}
    answer = await ann.post("/api/v1/clusters/lab/apply", json=body)
    assert answer.status_code == 202, answer.text
    await server.work_off()
    found: dict[str, Any] = answer.json()
    return found


async def test_operation_cluster_and_audit_name_the_commit(server: Server) -> None:
    queued = await _apply(server, ORIGIN)
    ann = await server.client("ann")
    operation = (await ann.get(f"/api/v1/operations/{queued['id']}")).json()
    assert (queued["commit"], operation["commit"]) == ("5" * 40, "5" * 40)
    assert (await ann.get("/api/v1/clusters/lab")).json()["origin"] == {**ORIGIN, "scaled": False}
    for path in (f"/operations/{queued['id']}", "/clusters/lab"):
        assert f"commit {'5' * 12}" in (await ann.get(path)).text
    (line,) = (await ann.get("/api/v1/audit", params={"action": "apply"})).json()["lines"]
    detail = line["detail"]
    assert (detail["commit"], detail["repository"], detail["path"]) == ("5" * 40, ORIGIN["url"], "lab.yaml")


async def test_a_scale_keeps_the_commit_and_says_so(server: Server) -> None:
    await _apply(server, ORIGIN)
    ann = await server.client("ann")
    scaled = await ann.post("/api/v1/clusters/lab/scale", json={"groups": {"": 5}})
    assert scaled.status_code == 202, scaled.text
    await server.work_off()
    assert (await ann.get("/api/v1/clusters/lab")).json()["origin"] == {**ORIGIN, "scaled": True}


async def test_a_file_that_is_not_from_git_ends_the_commit(server: Server) -> None:
    await _apply(server, ORIGIN)
    await _apply(server, None, note="by hand")
    assert (await (await server.client("ann")).get("/api/v1/clusters/lab")).json()["origin"] is None


@pytest.mark.parametrize("change", [{"commit": "main"}, {"commit": "5" * 39}, {"url": "x" * 2001}, {"by": "ann"}])
async def test_an_origin_that_is_none_is_refused(server: Server, change: dict[str, str]) -> None:
    ann = await server.client("ann")
    body = {"document": {**document().model_dump(), "origin": {**ORIGIN, **change}}}
    assert (await ann.post("/api/v1/clusters/lab/apply", json=body)).status_code == 422
