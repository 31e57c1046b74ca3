"""As an operation, a roll lets waiting operations run first, keeps the cluster ready, and leaves it ready when it
stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused
from headway.server.workers import operation_worker
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

AT = "/api/v1/clusters/lab/roll"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, builders.Clock(), plan_rollout=server_fakes.changes(), roll_nodes=True)
    await made.apply()
    yield made
    await made.close()


async def state_of(server: Server) -> str:
    row = await server.store.clusters.get("lab")
    assert row is not None
    return row.state


async def test_rollout_deadline_is_absolute_and_the_cluster_stays_ready(server: Server) -> None:
    client, states = await server.client(), list[str]()

    async def roll(*_: Any) -> bool:
        states.append(await state_of(server))
        return True

    server.backend.answers["roll_nodes"] = roll
    answer = await client.post(AT, json={"by_s": 600})
    assert answer.status_code == 202
    clock: Any = server.state.clock
    clock.now += 5
    await server.work_off()
    ((cluster, _, _, back, until),) = server.backend.named("roll_nodes")
    assert (cluster.name, back, until) == ("lab", False, clock.now - 5 + 600)
    assert states == ["ready"]
    assert await state_of(server) == "ready"
    assert server.backend.named("roll_heads") == []


@pytest.mark.parametrize("state", ["ready", "failed"])
async def test_machine_replacement_runs_no_apply_and_keeps_the_cluster_state(server: Server, state: str) -> None:
    """Whatever else an apply would change waits for somebody's word, as after an upgrade."""
    server.backend.answers["replace_machine"] = None
    await server.store.clusters.save("lab", state=state)
    server.backend.calls.clear()
    asked = await server.store.operations.enqueue("lab", "replace", "headway", params={"node": "lab-1-1"})
    await server.work_off()
    ((cluster, _, node, since),) = server.backend.named("replace_machine")
    assert (cluster.name, node, since) == ("lab", "lab-1-1", asked.created_at)
    assert server.backend.named("apply") == []
    assert await state_of(server) == state
    client = await server.client()
    assert "Another machine of lab" in (await client.get(f"/operations/{asked.id}")).text
    assert "machine replacement: done" in (await client.get("/api/v1/clusters/lab/activity")).text


async def test_rollout_handles_the_head_after_the_nodes_and_can_go_back(server: Server) -> None:
    server.backend.answers["roll_heads"] = None
    await (await server.client()).post(AT, json={"back": True, "head": True})
    await server.work_off()
    assert [name for name, _ in server.backend.calls if name in ("roll_nodes", "roll_heads")] == [
        "roll_nodes",
        "roll_heads",
    ]
    assert server.backend.named("roll_nodes")[0][3] is True
    assert server.backend.named("roll_heads")[0][2] is True
    assert await state_of(server) == "ready"


async def test_rollout_interrupted_at_the_head_continues_there(server: Server) -> None:
    """The head may be gone by then, and without its controller nobody can look at nodes."""
    server.backend.answers["roll_heads"] = None
    await (await server.client()).post(AT, json={"head": True})
    await server.store.clusters.save("lab", state="changing")  # as it was left
    await server.work_off()
    assert [name for name, _ in server.backend.calls if name in ("roll_nodes", "roll_heads")] == ["roll_heads"]
    assert await state_of(server) == "ready"


async def test_failed_node_fails_the_rollout_but_not_the_cluster(server: Server) -> None:
    server.backend.answers["roll_nodes"] = Refused("lab-1-1: nvidia-smi lists 0 GPUs", hint="--back")
    answer = await (await server.client()).post(AT, json={})
    await server.work_off()
    operation = await server.store.operations.get(answer.json()["id"])
    assert operation.state == "failed"
    assert "lists 0 GPUs" in str(operation.error)
    assert await state_of(server) == "ready"


async def test_waiting_operation_runs_before_the_rest_of_a_rollout(server: Server) -> None:
    client, seen = await server.client(), list[bool]()

    async def roll(_: Any, __: Any, waits: Any, *___: Any) -> bool:
        if not seen:
            await server.store.operations.enqueue("lab", "rotate", "ann", params={"what": "jwt", "ref": "r"})
        seen.append(await waits())
        return not seen[-1]

    server.backend.answers |= {"roll_nodes": roll, "rotate_key": None}
    answer = await client.post(AT, json={"by_s": 600})
    await server.work_off()
    assert seen == [True, False]
    kinds = [one.kind for one in reversed(await server.store.operations.recent("lab"))]
    assert kinds == ["apply", "roll", "rotate", "roll"]
    first = await server.store.operations.get(answer.json()["id"])
    assert first.state == "done"
    following = await server.store.operations.get(first.kept[0])
    assert following.params == first.params


@pytest.mark.parametrize("ask", [{"stop": True}, {"back": True}])
async def test_new_rollout_request_replaces_a_running_rollout(server: Server, ask: dict[str, bool]) -> None:
    client, turns = await server.client(), list[bool]()

    async def roll(_: Any, __: Any, waits: Any, back: bool, ___: Any) -> bool:
        turns.append(back)
        if not back:
            await client.post(AT, json=ask)
        return not await waits()

    server.backend.answers |= {"roll_nodes": roll, "halt_rollout": None}
    await client.post(AT, json={})
    await server.work_off()
    assert [one.kind for one in await server.store.operations.recent("lab")] == ["roll", "roll", "apply"]
    assert turns == ([False] if "stop" in ask else [False, True])
    assert len(server.backend.named("halt_rollout")) == int("stop" in ask)


async def test_impossible_rollout_is_refused_before_it_is_queued(server: Server) -> None:
    server.backend.answers["plan_rollout"] = Refused("lab has not been rolled: it has no previous image")
    answer = await (await server.client()).post(AT, json={"back": True})
    assert (answer.status_code, "no previous image" in answer.text) == (400, True)
    assert [one.kind for one in await server.store.operations.recent("lab")] == ["apply"]


async def test_operation_page_and_activity_name_the_rollout(server: Server) -> None:
    operation = await server.store.operations.enqueue("lab", "roll", "ann", params={})
    await server.work_off()
    client = await server.client()
    page = await client.get(f"/operations/{operation.id}")
    assert (page.status_code, "Roll lab" in page.text) == (200, True)
    assert "node image rollout: done" in (await client.get("/api/v1/clusters/lab/activity")).text


async def test_operation_restarts_after_the_database_was_unavailable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def roll(*_: Any) -> bool:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreUnavailable("the server's database does not answer")
        return True

    monkeypatch.setattr(operation_worker, "AWAY_S", 0.0)
    server.backend.answers["roll_nodes"] = roll
    await (await server.client()).post(AT, json={})
    await server.work_off()
    operation = (await server.store.operations.recent("lab"))[0]
    assert (operation.kind, operation.state, operation.error, tries) == ("roll", "done", None, 3)
    assert [event.text for event in await server.store.operations.events_after(operation.id)] == [
        operation_worker.WAS_AWAY
    ] * 2
