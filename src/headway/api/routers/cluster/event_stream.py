"""Changes of jobs, nodes, incidents and operations as one stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Header, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from headway.api.auth.dependencies import Anyone, AnyoneAllClusters, State
from headway.api.http.authorized_stream import stream_while_allowed
from headway.api.http.event_response import EventResponse
from headway.schemas.base import API_PREFIX
from headway.schemas.event_stream import ClusterEventOut
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.read_model.live_state import LiveState
from headway.services.read_model.topic_hub import events_topic

router = APIRouter(prefix=API_PREFIX, tags=["events"])
STREAM = {
    200: {
        "model": ClusterEventOut,
        "content": {"text/event-stream": {}},
        "description": "ClusterEventOut as server-sent events",
    }
}


@router.get("/events", response_class=EventSourceResponse, responses=STREAM)  # type: ignore[arg-type]
async def stream_events_of_all_clusters(
    request: Request, state: State, who: AnyoneAllClusters, last_event_id: str = Header("")
) -> EventSourceResponse:
    """Streams the events of every cluster: `job`, `node`, `incident`, `operation` (ClusterEventOut). Resumes after
    `Last-Event-ID`. If events since then are no longer stored, sends `reset`: read the lists again. Sends `stopping`
    when the server stops."""
    return _answer(request, state, who, "", last_event_id)


@router.get("/clusters/{name}/events", response_class=EventSourceResponse, responses=STREAM)  # type: ignore[arg-type]
async def of_cluster(
    name: str, request: Request, state: State, who: Anyone, last_event_id: str = Header("")
) -> EventSourceResponse:
    """Streams the events of one cluster, in the same form as /events."""
    await state.clusters.cached(name)
    return _answer(request, state, who, name, last_event_id)


def _answer(request: Request, state: AppState, who: Principal, cluster: str, last: str) -> EventSourceResponse:
    events = stream_while_allowed(request, _follow(state, who, cluster, last), Right.READ)
    return EventResponse(events, state, who)


async def _follow(state: AppState, who: Principal, cluster: str, last: str) -> AsyncIterator[ServerSentEvent]:
    live, topic = state.live, events_topic(cluster)
    seen = _place(live, last)
    if seen is None:
        seen = live.last_event_number
        yield ServerSentEvent("{}", event="reset", id=f"{live.epoch}-{seen}")
    elif not last:
        yield ServerSentEvent("{}", event="ready", id=f"{live.epoch}-{seen}")  # gives the client a place to resume from
    with live.hub.count_watcher(topic):
        while not live.stopping.is_set():
            number = live.hub.version(topic)
            news = live.events_after(seen)
            if news is None:
                seen = live.last_event_number
                yield ServerSentEvent("{}", event="reset", id=f"{live.epoch}-{seen}")
                continue
            for event in news:
                seen = event.number
                if cluster in ("", event.cluster) and who.may_see_cluster(event.cluster):
                    yield ServerSentEvent(event.text, event=event.kind, id=f"{live.epoch}-{seen}")
            await live.hub.wait_for_change(topic, number)
    yield ServerSentEvent("{}", event="stopping")


def _place(live: LiveState, last: str) -> int | None:
    """Returns the number after which to continue, or None if the id is from an earlier start of the server or is
    invalid."""
    if not last:
        return live.last_event_number
    epoch, _, number = last.partition("-")
    if epoch != live.epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
        return None
    return int(number) if int(number) <= live.last_event_number else None
