"""Clusters and operations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from headway.api.auth.dependencies import MAX_PATH_NUMBER, Admin, Anyone, AnyoneAllClusters, Member, Planner, State
from headway.api.http.pagination import ANY, Page, States, Text, Words, fits, says
from headway.api.http.revalidated_stream import stream_while_allowed
from headway.domain.machine import MachineState
from headway.errors import Conflict
from headway.schemas.clusters import (
    ApplyIn,
    ChangeSetOut,
    ClusterOut,
    Document,
    DownIn,
    OperationOut,
    ScaleIn,
    StatusOut,
)
from headway.schemas.people import AccessOut
from headway.services.authorization import write_audit_line
from headway.services.cluster import planning
from headway.services.context import AppState
from headway.services.identity import Right
from headway.services.mappers import check_out, cluster_out, event_out, node_outs, operation_out, without_secrets
from headway.services.read_model.snapshot import operation_topic
from headway.store import OperationAsk

router = APIRouter(tags=["clusters"])
LOOK_S = 1.0  # another server may write the events: look at least this often
PING_S = 10
EVENTS_AT_ONCE = 1000


@router.post("/plan")
async def plan(document: Document, state: State, who: Planner) -> ChangeSetOut:
    """What apply of this document would change."""
    return await planning.plan_document(state, who, document)


@router.post("/clusters/{name}/apply", status_code=202)
async def apply(name: str, ask: ApplyIn, state: State, who: Admin) -> OperationOut:
    """Queues an apply. Follow it at /operations/{id}/events."""
    operation = await planning.queue_apply(state, who, name, ask)
    await write_audit_line(state, who, "apply", name, operation=operation.id, confirmed=ask.confirmed)
    return operation_out(operation)


@router.post("/clusters/{name}/scale/plan")
async def plan_scale(name: str, ask: ScaleIn, state: State, who: Planner) -> ChangeSetOut:
    """What another number of nodes would change."""
    return await planning.plan_scale(state, who, name, ask)


@router.post("/clusters/{name}/scale", status_code=202)
async def scale(name: str, ask: ScaleIn, state: State, who: Admin) -> OperationOut:
    """Queues another number of nodes: up in one step, down by draining. Nodes with running jobs go only when
    `deadline_s` says how long those may go on before they are requeued."""
    operation = await planning.queue_scale(state, who, name, ask)
    await write_audit_line(
        state, who, "scale", name, operation=operation.id, groups=ask.groups, deadline_s=ask.deadline_s
    )
    return operation_out(operation)


@router.post("/clusters/{name}/down", status_code=202)
async def down(name: str, ask: DownIn, state: State, who: Admin) -> OperationOut:
    """Queues taking the cluster down. Data is kept unless `delete_data`."""
    operation = await planning.queue_down(state, who, name, delete_data=ask.delete_data)
    await write_audit_line(state, who, "down", name, operation=operation.id, delete_data=ask.delete_data)
    return operation_out(operation)


@router.get("/clusters")
async def clusters(
    state: State, who: AnyoneAllClusters, page: Page, q: Text = "", status: States = ANY
) -> list[ClusterOut]:
    rows = await state.store.clusters.all()
    found = [cluster_out(row, state.live.snapshot(row.name)) for row in rows if who.may_see_cluster(row.name)]
    fit = [one for one in found if says(q, one.name) and fits(one.state, status)]
    return page.cut(fit, lambda one: (one.name,))


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
    """The document that was last applied, without what is as good as a password."""
    return without_secrets(Document.model_validate((await state.row(name)).document))


@router.get("/clusters/{name}/access")
async def access(name: str, state: State, who: Member) -> AccessOut:
    """What plain ssh needs to reach the cluster as this person."""
    _, cluster = await state.cluster(name)
    machines = await state.work.machines(cluster)
    by_name = {machine.name: machine for machine in machines}
    heads = [by_name[name] for name in cluster.heads if name in by_name]
    head = next((machine for machine in heads if machine.state is MachineState.RUNNING), heads[0] if heads else None)
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
        head=head.name,
        address=head.address,
        port=head.port,
        host_keys=lines,
        machines={machine.name: machine.address for machine in machines},
        ports={machine.name: machine.port for machine in machines if machine.port != 22},
    )


@router.get("/operations")
async def operations(
    state: State,
    who: AnyoneAllClusters,
    page: Page,
    cluster: str = "",
    kind: Words = ANY,
    status: States = ANY,
    person: Words = ANY,
) -> list[OperationOut]:
    """The latest first."""
    if not who.may_see_cluster(cluster or who.only_cluster):
        return []
    ask = OperationAsk(cluster or who.only_cluster, kind, status, person)
    found = await state.store.operations.search(ask, after=page.place(float, str), limit=page.limit + 1)
    return [operation_out(one) for one in page.cut(found, lambda one: (one.created_at, one.id), newest=True)]


@router.get("/operations/{operation_id}")
async def operation(operation_id: str, state: State, who: AnyoneAllClusters) -> OperationOut:
    found = await state.store.operations.get(operation_id)
    who.require_cluster(found.cluster)
    return operation_out(found)


@router.get("/operations/{operation_id}/events", response_class=EventSourceResponse)
async def events(
    operation_id: str,
    request: Request,
    state: State,
    who: AnyoneAllClusters,
    after: int = Query(0, ge=0, le=MAX_PATH_NUMBER),
    last_event_id: str = Header(""),
) -> EventSourceResponse:
    """Progress as server-sent events (EventOut, id = seq), then one event `end` (OperationOut), or `stopping` when the
    server stops before. Resumes after the `Last-Event-ID` header or `?after=`."""
    who.require_cluster((await state.store.operations.get(operation_id)).cluster)
    told = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= len(str(MAX_PATH_NUMBER))
    seen = min(int(last_event_id), MAX_PATH_NUMBER) if told else after
    progress = stream_while_allowed(request, _follow(state, operation_id, seen), Right.READ)
    return EventSourceResponse(progress, ping=PING_S, headers={"Cache-Control": "no-store"})


async def _follow(state: AppState, operation_id: str, seen: int) -> AsyncIterator[ServerSentEvent]:
    topic = operation_topic(operation_id)
    while not state.live.stopping.is_set():
        number = state.live.hub.number(topic)
        operation = await state.store.operations.get(operation_id)  # before the events: none is written after the end
        found = await state.store.operations.events_after(operation_id, seen, limit=EVENTS_AT_ONCE)
        for event in found:
            seen = event.seq
            yield ServerSentEvent(event_out(event).model_dump_json(), event="progress", id=str(seen))
        if len(found) == EVENTS_AT_ONCE:  # there may be more
            continue
        if operation.finished:
            yield ServerSentEvent(operation_out(operation).model_dump_json(), event="end")
            return
        await state.live.hub.changed(topic, number, LOOK_S)
    yield ServerSentEvent("", event="stopping")


def _known_host(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"
