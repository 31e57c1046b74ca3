"""An operation's page and stream are shown only to people with access to its cluster and cost the same for fifty
viewers as for one; the home page counts every open incident."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sqlalchemy import insert

from headway.catalog.providers import AWS
from headway.domain.access.role import Role
from headway.domain.incident import FaultAction, IncidentState
from headway.services.access.role_rights import Principal
from headway.services.cluster.cluster_to_schema import summary_of
from headway.services.read_model.topic_hub import operation_topic
from headway.store.db import cluster_schema
from headway.web.pages.cluster import operations
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

ANN = Principal("ann", Role.ADMIN)


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster."""
    await server.apply()
    return server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "GATHER_S", 0.01)


@pytest.mark.parametrize("path", ["", "/live"])
async def test_operation_page_refuses_a_token_of_another_cluster(server: Server, path: str) -> None:
    (operation,) = await server.store.operations.recent("lab")
    await server.store.people.set_role("eve", "admin")
    _, mine = await server.store.tokens.create("eve", cluster="lab")
    _, other = await server.store.tokens.create("eve", cluster="sea")
    at = f"/operations/{operation.id}{path}"
    assert (await server.anonymous(authorization=f"Bearer {mine}").get(at)).status_code == 200
    assert (await server.anonymous(authorization=f"Bearer {other}").get(at)).status_code == 403


async def test_home_page_counts_open_incidents_despite_many_ended_ones(server: Server) -> None:
    store = server.store
    for number in range(60):
        opened = await store.incidents.open("lab", "lab-1-1", "what", FaultAction.REBOOT, 1000.0 + number, {})
        if number > 1:
            await store.incidents.add_step(opened, IncidentState.RETURNED, "passed", evidence={"passed": ["x"]})
    page = (await (await server.client()).get("/")).text
    assert "2 open incidents" in page


async def _running(server: Server) -> str:
    """An operation that somebody carries out."""
    made = await server.store.operations.enqueue("sea", "apply", "ann")
    assert await server.store.operations.claim("test:1", server.state.clock(), 60) is not None
    return made.id


async def _tell(server: Server, operation: str, step: str, text: str, **more: Any) -> None:
    await server.store.operations.add_event(operation, step, text, **more)
    server.state.live.hub.publish(operation_topic(operation))


async def _next(stream: Any) -> tuple[str, str]:
    event = await asyncio.wait_for(anext(stream), 60)
    return event.event, event.data


async def test_steps_of_a_long_operation_are_shown_as_done(server: Server) -> None:
    operation = await _running(server)
    lines = [
        {"operation": operation, "seq": seq, "at": 1000.0, "step": f"sea-{seq % 500}", "text": "is being made",
         "level": "info", "done": False, "seconds": None}
        for seq in range(1, 20_001)
    ]  # fmt: skip
    async with server.store.database.write() as db:
        await db.execute(insert(cluster_schema.events), lines)
    for node in range(500):
        await server.store.operations.add_event(operation, f"sea-{node}", "is set up", done=True, seconds=3.0)
    await server.store.operations.finish(operation, "test:1", "done")
    page = (await (await server.client()).get(f"/operations/{operation}")).text
    assert "500 of 500 done" in page
    assert "is-failed" not in page


async def test_step_left_open_by_a_failed_operation_is_shown_as_failed(server: Server) -> None:
    operation = await _running(server)
    await server.store.operations.add_event(operation, "sea-head", "is set up", done=True, seconds=3.0)
    await server.store.operations.add_event(operation, "sea-1-1", "is being made")
    await server.store.operations.finish(
        operation, "test:1", "failed", error={"kind": "unreachable", "message": "gone"}
    )
    page = (await (await server.client()).get(f"/operations/{operation}")).text
    assert page.count("step is-failed") == page.count("step is-done") == 1


async def test_operation_viewers_share_reads_and_rendered_lines(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, asked = [], []
    draw, after = operations._Looked.drawn, server.store.operations.events_after

    async def events_after(operation: str, seq: int = 0, *, limit: int = 1000) -> Any:
        asked.append(seq)
        return await after(operation, seq, limit=limit)

    monkeypatch.setattr(operations._Looked, "drawn", lambda *of: drawn.append(draw(*of)) or drawn[-1])
    monkeypatch.setattr(server.store.operations, "events_after", events_after)
    operation = await _running(server)
    await _tell(server, operation, "sea-head", "is being made")
    viewers = [operations.events(server.state, operation, ANN) for _ in range(3)]
    assert {(await _next(viewer))[0] for viewer in viewers} == {"progress"}
    await _tell(server, operation, "sea-head", "is set up", done=True, seconds=3.0)
    for viewer in viewers:
        event, text = await _next(viewer)
        assert event == "progress"
        assert "is set up" in text
    assert len({id(text) for text in drawn}) == 2, "the very same text for each viewer"
    assert asked.count(0) == 1, "no line is read twice"
    await server.store.operations.finish(operation, "test:1", "done")
    server.state.live.hub.publish(operation_topic(operation))
    for viewer in viewers:
        assert [(await _next(viewer))[0] for _ in range(2)] == ["progress", "leave"]
        with pytest.raises(StopAsyncIteration):
            await anext(viewer)
    viewers.clear()
    assert not server.state.operation_views, "no view is kept without a viewer"


async def test_operation_stream_batches_lines_and_ignores_the_clock(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = asyncio.Event()
    reading = operations._Looked._read

    async def reads(*of: Any) -> Any:
        found = await reading(*of)
        read.set()
        return found

    monkeypatch.setattr(operations, "LOOK_S", 0.01)
    monkeypatch.setattr(operations._Looked, "_read", reads)
    operation = await _running(server)
    viewer = operations.events(server.state, operation, ANN)
    await _next(viewer)
    following = asyncio.create_task(_next(viewer))
    server.state.clock.now += 60  # type: ignore[attr-defined]
    for _ in range(3):
        read.clear()
        await asyncio.wait_for(read.wait(), 60)
    assert not following.done()
    monkeypatch.setattr(operations, "GATHER_S", 0.5)
    began = time.monotonic()
    for node in range(40):
        await _tell(server, operation, f"sea-1-{node}", "is being made")
    told_s = time.monotonic() - began
    texts = [(await following)[1]]
    while "sea-1-39" not in texts[-1]:
        texts.append((await _next(viewer))[1])
    assert len(texts) <= 2 + told_s // operations.GATHER_S, "for all forty"
    await viewer.aclose()


async def test_idle_operation_stream_sends_pulses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PULSE_S", 0)
    operation = await _running(server)
    viewer = operations.events(server.state, operation, ANN)
    assert [(await _next(viewer))[0] for _ in range(3)] == ["progress", "pulse", "pulse"]
    await viewer.aclose()


async def test_cost_on_the_home_page_leaves_out_clusters_that_rent_machines(server: Server) -> None:
    client = await server.client()
    assert "without clusters that rent machines" not in (await client.get("/")).text
    row = await server.store.clusters.get("lab")
    assert row is not None
    rented = summary_of(builders.cluster(4, name="sea", provider=AWS))
    await server.store.clusters.save("sea", row.document, summary=rented, state="ready", owner="ann")
    page = (await client.get("/")).text
    assert "at the plans' prices; without clusters that rent machines" in page
    assert page.count("<dt>Cost</dt>") == 2, "of all clusters and of lab"
