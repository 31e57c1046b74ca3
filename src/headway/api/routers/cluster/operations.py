"""Operations of clusters, and their progress."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.api.http.authorized_stream import stream_while_allowed
from headway.api.http.event_response import EventResponse
from headway.api.http.pagination import ANY, Page, States, Words
from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.schemas.base import API_PREFIX
from headway.schemas.operations import EventOut, OperationOut
from headway.services.access.role_rights import Right
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operation_view import shows_server_paths, visible_event, visible_operation
from headway.services.read_model.topic_hub import operation_topic
from headway.store import OperationAsk

router = APIRouter(prefix=API_PREFIX, tags=["clusters"])
RECHECK_S = 1.0  # another server may write the events, so check at least this often
EVENTS_BATCH = 1000


@router.get("/operations")
async def list_operations(
    state: State,
    who: AnyoneAllClusters,
    page: Page,
    cluster: str = "",
    kind: Words = ANY,
    status: States = ANY,
    person: Words = ANY,
) -> list[OperationOut]:
    """Returns operations, the latest first."""
    if not who.may_see_cluster(cluster or who.only_cluster):
        return []
    query = OperationAsk(cluster or who.only_cluster, kind, status, person)
    found = await state.store.operations.search(query, after=page.place(float, str), limit=page.limit + 1)
    paths = shows_server_paths(who)
    rows = page.cut(found, lambda row: (row.created_at, row.id), newest=True)
    return [operation_out(visible_operation(row, paths=paths)) for row in rows]


@router.get("/operations/{operation_id}")
async def get_operation(operation_id: str, state: State, who: AnyoneAllClusters) -> OperationOut:
    """Returns one operation."""
    found = await state.store.operations.get(operation_id)
    who.require_cluster(found.cluster)
    return operation_out(visible_operation(found, paths=shows_server_paths(who)))


@router.get("/operations/{operation_id}/events", response_class=EventSourceResponse)
async def stream_operation_events(
    operation_id: str,
    request: Request,
    state: State,
    who: AnyoneAllClusters,
    after: int = Query(0, ge=0, le=MAX_PATH_NUMBER),
    last_event_id: str = Header(""),
) -> EventSourceResponse:
    """Streams an operation's progress as server-sent events (EventOut, id = seq), then one event `end` (OperationOut),
    or `stopping` if the server stops before. Resumes after the `Last-Event-ID` header or `?after=`."""
    who.require_cluster((await state.store.operations.get(operation_id)).cluster)
    valid = last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= len(str(MAX_PATH_NUMBER))
    seen = min(int(last_event_id), MAX_PATH_NUMBER) if valid else after
    progress = stream_while_allowed(
        request, _follow(state, operation_id, seen, paths=shows_server_paths(who)), Right.READ
    )
    return EventResponse(progress, state, who)


async def _follow(state: AppState, operation_id: str, seen: int, *, paths: bool) -> AsyncIterator[ServerSentEvent]:
    topic = operation_topic(operation_id)
    while not state.live.stopping.is_set():
        number = state.live.hub.version(topic)
        # Read before the events: no event is written after the end
        operation = await state.store.operations.get(operation_id)
        found = await state.store.operations.events_after(operation_id, seen, limit=EVENTS_BATCH)
        for event in found:
            seen = event.seq
            out = EventOut.model_validate(visible_event(event, operation, paths=paths))
            yield ServerSentEvent(out.model_dump_json(), event="progress", id=str(seen))
        if len(found) == EVENTS_BATCH:  # there may be more
            continue
        if operation.finished:
            ended = operation_out(visible_operation(operation, paths=paths))
            yield ServerSentEvent(ended.model_dump_json(), event="end")
            return
        await state.live.hub.wait_for_change(topic, number, RECHECK_S)
    yield ServerSentEvent("", event="stopping")
