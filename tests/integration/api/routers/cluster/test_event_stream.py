"""The event stream sends events in order and resumes at the position that the client names."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from headway.api.http import authorized_stream
from headway.schemas.event_stream import ClusterEventOut
from headway.services.read_model.live_events import MAX_EVENTS
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server
from tests.support.waiting import eventually

STREAM = "/api/v1/clusters/lab/events"


def put(server: Server, *jobs: Any, nodes: Any = (), cluster: str = "lab") -> None:
    server.state.live.store_snapshot(Snapshot(cluster, tuple(nodes), tuple(jobs), as_of=server.state.clock()))


def follows(server: Server) -> bool:
    """Returns whether a request waits for news of a cluster."""
    return any(name.startswith("news/") for name in server.state.live.hub._waiting)


async def heard(
    server: Server, client: httpx.AsyncClient, path: str = STREAM, last: str = ""
) -> list[tuple[str, str, Any]]:
    """(event, id, data) of everything until the server stops."""
    task = asyncio.create_task(client.get(path, headers={"last-event-id": last} if last else {}))
    async with asyncio.timeout(60):
        await eventually(lambda: follows(server) or task.done())
    server.state.live.stopping.set()
    server.state.live.hub.close()
    found = []
    for block in (await task).text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if lines:
            found.append((lines.get("event", ""), lines.get("id", ""), json.loads(lines.get("data") or "{}")))
    server.state.live.stopping.clear()
    return found


async def test_event_stream_sends_job_and_node_changes_and_resumes(server: Server) -> None:
    await server.apply()
    client = await server.client("eve", "viewer")
    put(server, builders.job(1, "PENDING"), nodes=(builders.node("lab-1-1"),))
    ((kind, first, _), *_) = await heard(server, client)
    assert kind == "ready"
    put(server, builders.job(1), builders.job(2, "PENDING"), nodes=(builders.node("lab-1-1", "DOWN", reason="dead"),))
    put(server, builders.job(2, "PENDING"), nodes=(builders.node("lab-1-1", "DOWN", reason="dead"),))
    put(server, builders.job(2, "PENDING"), cluster="other")
    answer = await heard(server, client, last=first)
    assert [(kind, data.get("name"), data.get("before", ""), data.get("state")) for kind, _, data in answer[:-1]] == [
        ("node", "lab-1-1", "IDLE", "DOWN"),
        ("job", "1", "PENDING", "RUNNING"),
        ("job", "2", "", "PENDING"),
        ("job", "1", "RUNNING", ""),
    ]
    assert answer[-1][0] == "stopping"
    for _, _, data in answer[:-1]:
        ClusterEventOut.model_validate(data)
    again = await heard(server, client, last=answer[2][1])
    assert [data.get("name") for _, _, data in again[:-1]] == ["1"]


@pytest.mark.parametrize("last", ["nonsense", "00000000-1", "{epoch}-999999999", "{epoch}-x"])
async def test_unknown_last_event_id_gets_a_reset_event(server: Server, last: str) -> None:
    await server.apply()
    answer = await heard(server, await server.client(), last=last.format(epoch=server.state.live.epoch))
    assert [kind for kind, _, _ in answer] == ["reset", "stopping"]


async def test_global_stream_sends_operations_of_all_clusters(server: Server) -> None:
    client = await server.client()
    ((_, first, _), *_) = await heard(server, client, "/api/v1/events")
    await server.apply()
    await server.state.readings.publish_incident_changes("lab")
    told = await heard(server, client, "/api/v1/events", first)
    assert [(kind, data.get("state")) for kind, _, data in told[:-1]] == [
        ("operation", "queued"),
        ("operation", "running"),
        ("operation", "done"),
    ]


def test_events_after_returns_none_for_dropped_events() -> None:
    live = LiveState()
    row = ClusterEventOut(at=1, cluster="lab", kind="job", name="1", state="RUNNING")
    for _ in range(MAX_EVENTS + 5):
        live.publish_events(row)
    assert live.events_after(4) is None
    assert len(live.events_after(5) or ()) == MAX_EVENTS
    assert live.events_after(live.last_event_number) == []


def test_events_of_more_than_ten_minutes_ago_are_dropped() -> None:
    """A server with a steady load would otherwise grow until it has MAX_EVENTS, for hours."""
    clock = builders.Clock()
    live = LiveState(clock)
    row = ClusterEventOut(at=1, cluster="lab", kind="job", name="1", state="RUNNING")
    for _ in range(30):
        live.publish_events(row)
        clock.now += 60
    live.publish_events(row)
    assert live.last_event_number == 31
    assert [event.number for event in live.events_after(20) or ()] == list(range(21, 32))
    assert live.events_after(19) is None


async def test_deleting_a_token_ends_its_event_stream(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorized_stream, "RECHECK_S", 0.01)
    await server.apply()
    client = await server.client("eve", "viewer")
    task = asyncio.create_task(client.get(STREAM))
    await eventually(lambda: follows(server))
    (token,) = [row.id for row in await server.store.tokens.all("eve")]
    await server.store.tokens.delete(token)
    async with asyncio.timeout(60):
        assert "stopping" not in (await task).text
