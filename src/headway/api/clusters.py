"""Clusters and operations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from headway.api import planning
from headway.api.access import Admin, Anyone, Member, State, audit
from headway.api.live import operation_topic
from headway.api.shapes import check_out, cluster_out, event_out, node_outs, operation_out
from headway.api.state import AppState
from headway.errors import Conflict
from headway.wire.schemas import (
    AccessOut,
    ApplyIn,
    ChangeSetOut,
    ClusterOut,
    Document,
    DownIn,
    OperationOut,
    StatusOut,
)

router = APIRouter(tags=["clusters"])
LOOK_S = 1.0  # another server may write the events: look at least this often
PING_S = 10
MOST_EVENTS = 10**15


@router.post("/plan")
async def plan(document: Document, state: State, who: Member) -> ChangeSetOut:
    """What apply of this document would change."""
    return await planning.plan(state, who, document)


@router.post("/clusters/{name}/apply", status_code=202)
async def apply(name: str, ask: ApplyIn, state: State, who: Admin) -> OperationOut:
    """Queues an apply. Follow it at /operations/{id}/events."""
    operation = await planning.apply(state, who, name, ask)
    await audit(state, who, "apply", name, operation=operation.id, confirmed=ask.confirmed)
    return operation_out(operation)


@router.post("/clusters/{name}/down", status_code=202)
async def down(name: str, ask: DownIn, state: State, who: Admin) -> OperationOut:
    """Queues taking the cluster down. Data is kept unless `delete_data`."""
    operation = await planning.down(state, who, name, delete_data=ask.delete_data)
    await audit(state, who, "down", name, operation=operation.id, delete_data=ask.delete_data)
    return operation_out(operation)


@router.get("/clusters")
async def clusters(state: State, _: Anyone) -> list[ClusterOut]:
    return [cluster_out(row, state.live.snapshot(row.name)) for row in await state.store.clusters()]


@router.get("/clusters/{name}")
async def cluster(name: str, state: State, _: Anyone) -> ClusterOut:
    return cluster_out(await state.row(name), state.live.snapshot(name))


@router.get("/clusters/{name}/status")
async def status(name: str, state: State, _: Anyone) -> StatusOut:
    """Readiness, one (ok, message) a thing, and the nodes, read now."""
    row, cluster = await state.cluster(name)
    snapshot, checks = await asyncio.gather(state.read(cluster), state.checks(cluster))
    return StatusOut(
        cluster=cluster_out(row, snapshot),
        checks=[check_out(check) for check in checks],
        nodes=node_outs(cluster, snapshot),
    )


@router.get("/clusters/{name}/document")
async def document(name: str, state: State, _: Member) -> Document:
    """The document that was last applied."""
    return Document.model_validate((await state.row(name)).document)


@router.get("/clusters/{name}/access")
async def access(name: str, state: State, who: Member) -> AccessOut:
    """What plain ssh needs to reach the cluster as this person."""
    _, cluster = await state.cluster(name)
    machines = await state.work.machines(cluster)
    head = next((machine for machine in machines if machine.name == cluster.head), None)
    if head is None:
        raise Conflict(f"{cluster.head} does not exist yet", hint=f"headway status {name}")
    lines = []
    for machine in machines:
        key = " ".join(machine.host_key.split()[:2])
        if key:
            lines += [f"{machine.name} {key}", f"{_known_host(machine.address, machine.port)} {key}"]
    return AccessOut(
        cluster=name,
        user=who.user,
        head=cluster.head,
        address=head.address,
        port=head.port,
        host_keys=lines,
        machines={machine.name: machine.address for machine in machines},
    )


@router.get("/operations")
async def operations(state: State, _: Anyone, cluster: str = "") -> list[OperationOut]:
    """The latest first."""
    return [operation_out(operation) for operation in await state.store.operations(cluster)]


@router.get("/operations/{operation_id}")
async def operation(operation_id: str, state: State, _: Anyone) -> OperationOut:
    return operation_out(await state.store.operation(operation_id))


@router.get("/operations/{operation_id}/events", response_class=EventSourceResponse)
async def events(
    operation_id: str,
    state: State,
    _: Anyone,
    after: int = Query(0, ge=0, le=MOST_EVENTS),
    last_event_id: str = Header(""),
) -> EventSourceResponse:
    """Progress as server-sent events (EventOut, id = seq), then one event `end` (OperationOut), or `stopping` when the
    server stops before. Resumes after the `Last-Event-ID` header or `?after=`."""
    await state.store.operation(operation_id)
    told = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= len(str(MOST_EVENTS))
    seen = int(last_event_id) if told else after
    return EventSourceResponse(_follow(state, operation_id, seen), ping=PING_S, headers={"Cache-Control": "no-store"})


async def _follow(state: AppState, operation_id: str, seen: int) -> AsyncIterator[ServerSentEvent]:
    topic = operation_topic(operation_id)
    while not state.live.stopping.is_set():
        number = state.live.hub.number(topic)
        operation = await state.store.operation(operation_id)  # before the events: none is written after the end
        for event in await state.store.events_after(operation_id, seen):
            seen = event.seq
            yield ServerSentEvent(event_out(event).model_dump_json(), event="progress", id=str(seen))
        if operation.finished:
            yield ServerSentEvent(operation_out(operation).model_dump_json(), event="end")
            return
        await state.live.hub.changed(topic, number, LOOK_S)
    yield ServerSentEvent("", event="stopping")


def _known_host(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"
