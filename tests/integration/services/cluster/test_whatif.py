"""A what-if is queued, replayed by the worker, stored, and shown on the page; impossible changes are refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.errors import Refused
from headway.schemas.whatif import ReplayFiguresOut, WaitsOut, WhatIfOut
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

PATH = "/api/v1/clusters/lab/whatif"
SPEC: dict[str, Any] = {
    "name": "lab",
    "plan": "h100-8",
    "nodes": 4,
    "teams": {"vision": {"users": ["alice"]}},
    "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"],
}


def figures(median_s: float, usd: float) -> ReplayFiguresOut:
    """Returns figures of one team."""
    waits = [
        WaitsOut(team=team, size="all", jobs=3, median_s=median_s, p90_s=2 * median_s) for team in ("vision", "all")
    ]
    return ReplayFiguresOut(waits=waits, utilisation=0.5, last_end_s=7200, usd=usd)


RESULT = WhatIfOut(
    hours=2.0,
    jobs=3,
    figures={"real": figures(600, 90), "present": figures(620, 90), "changed": figures(30, 180)},
    starts={"present": {"11": 1.0}},
    refused={"changed": {"Job violates accounting/QOS policy": ["12"]}},
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    clock = builders.Clock()
    clock.now = 1_795_000_000.0
    made = await server_fakes.start(tmp_path, clock, replay=RESULT, query_metrics=())
    await made.apply()
    row = await made.store.clusters.get("lab")
    assert row is not None
    await made.store.clusters.save("lab", {**row.document, "spec": SPEC, "owner": "owner"})
    made.backend.lifecycle.resolve = LifecycleBackend(None).resolve  # type: ignore[method-assign,arg-type]
    yield made
    await made.close()


@pytest.fixture
async def operator(server: Server) -> httpx.AsyncClient:
    return await server.client("otto", "operator")


async def test_the_worker_replays_the_present_and_the_changed_cluster(
    server: Server, operator: httpx.AsyncClient
) -> None:
    body = {"nodes": ["+4"], "caps": ["vision=16"], "policy": {"slurm": {"PriorityWeightAge": "5"}}}
    queued = (await operator.post(PATH, json=body)).json()
    assert queued["kind"] == "what-if"
    await server.work_off()
    ((present, changed, since, until, operation, _),) = server.backend.named("replay")
    assert (len(present.slot_names), len(changed.slot_names)) == (4, 8)
    assert (since, until, operation) == ("now-1days", "now", queued["id"])
    (listed,) = (await operator.get(PATH)).json()
    assert listed["changes"] == ["nodes +4", "at most 16 GPUs for vision", "policy: slurm"]
    assert listed["starts"] == {}
    full = (await operator.get(f"{PATH}/{queued['id']}")).json()
    assert full["starts"] == {"present": {"11": 1.0}}
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.document["spec"] == SPEC, "the cluster's own file stays as it is"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"nodes": ["four"]}, 400, "no number of nodes"),
        ({"nodes": ["-9"]}, 400, "can't be removed"),
        ({"caps": ["nlp=3"]}, 404, "no team 'nlp'"),
        ({"policy": {"alerts": {}}}, 400, "policy: alerts can't be changed in a what-if"),
        ({"policy": {"slurm": {"PriorityWeight": "5"}}}, 422, "PriorityWeight"),
        ({"since": "--helppossible"}, 422, "since"),
    ],
)
async def test_impossible_changes_are_refused_before_anything_runs(
    server: Server, operator: httpx.AsyncClient, body: dict[str, Any], status: int, text: str
) -> None:
    answer = await operator.post(PATH, json=body)
    assert answer.status_code == status
    assert text in answer.text
    await server.work_off()
    assert not server.backend.named("replay")


async def test_the_page_takes_the_form_and_shows_the_replays(server: Server, operator: httpx.AsyncClient) -> None:
    page = (await operator.get("/clusters/lab/costs?section=capacity")).text
    assert 'action="/clusters/lab/whatif"' in page
    assert "As it was" not in page
    form = {"nodes": "+4", "team": "vision", "gpus": "", "policy": "slurm: {PriorityWeightAge: '5'}", "since": ""}
    sent = await operator.post("/clusters/lab/whatif", data=form)
    assert sent.status_code == 303
    queued = (await operator.get("/clusters/lab/costs?section=capacity")).text
    assert "A replay is running" in queued
    await server.work_off()
    done = (await operator.get(sent.headers["location"])).text
    assert "section=capacity&amp;whatif=" in done
    page = (await operator.get("/clusters/lab/costs?section=capacity")).text
    assert "Nodes +4, no cap for vision, policy: slurm" in page
    assert "Job violates accounting/QOS policy (12)" in page
    assert page.count("is-better") == 2
    assert page.count("is-worse") == 1, "the price of the nodes"


@pytest.mark.parametrize("role", ["viewer", "member", "lead"])
async def test_results_of_all_teams_are_for_operators(server: Server, operator: httpx.AsyncClient, role: str) -> None:
    queued = (await operator.post(PATH, json={"nodes": ["+4"]})).json()
    await server.work_off()
    address = f"/clusters/lab/costs?section=capacity&whatif={queued['id']}"
    assert "Nodes +4" in (await operator.get(address)).text
    other = await server.client("vic", role)
    for path in (PATH, f"{PATH}/{queued['id']}"):
        assert (await other.get(path)).status_code == 403
    for path in (address, f"{address}&period=2026-09"):  # the second month has no figures
        page = await other.get(path)
        assert page.status_code == 200
        assert 'id="whatif"' not in page.text
        assert "Nodes +4" not in page.text
    assert "Compare the replays" not in (await other.get(f"/operations/{queued['id']}")).text


async def test_costs_of_a_cluster_that_is_down_have_no_what_if(server: Server, operator: httpx.AsyncClient) -> None:
    await operator.post(PATH, json={"nodes": ["+4"]})
    await server.work_off()
    await server.store.machine_lifetimes.record("lab", [("lab-1-1", "main")], [], [], 1_795_000_000.0)
    await server.store.clusters.delete("lab")
    await server.state.forget("lab")
    for period in ("", "2026-09"):  # the second month has no figures
        page = await operator.get(f"/clusters/lab/costs?section=capacity&period={period}")
        assert page.status_code == 200
        assert 'id="whatif"' not in page.text


async def test_a_replay_takes_no_place_of_other_operations(
    server: Server, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may be carried out at a time here: an apply goes on while the replay, which may take an hour, is not over."""
    monkeypatch.setattr("headway.server.workers.operation_worker.AT_ONCE", 1)
    applied = asyncio.Event()

    async def replay(*_: Any) -> WhatIfOut:
        row = await server.store.clusters.get("lab")
        assert row is not None
        document = {**row.document, "spec": {**SPEC, "name": "other"}}
        await server.store.operations.enqueue("other", "apply", "ann", document=document)
        await applied.wait()
        return RESULT

    async def apply(*_: Any) -> bool:
        applied.set()
        return False

    server.backend.answers |= {"replay": replay, "apply": apply}
    await operator.post(PATH, json={})
    await server.work_off()
    assert server.state.waiting == set()


async def test_a_failed_replay_fails_its_operation_alone(server: Server, operator: httpx.AsyncClient) -> None:
    server.backend.answers["replay"] = Refused("no job of the trace can be replayed: it has no jobs")
    queued = (await operator.post(PATH, json={})).json()
    await server.work_off()
    found = (await operator.get(f"/api/v1/operations/{queued['id']}")).json()
    assert found["state"] == "failed"
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.state == "ready"
