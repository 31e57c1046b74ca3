"""An operation's progress, live: its steps with their seconds, its error and what to do next.

GET /operations/ID        the page; it works without scripts, where it reloads itself
GET /operations/ID/live   its progress as server-sent events: `progress` (the whole part as HTML), `pulse` (the server's
                          clock) and `leave`
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import Request
from sse_starlette import ServerSentEvent
from starlette.responses import Response

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.api.http.authorized_stream import stream_while_allowed
from headway.api.http.event_response import EventResponse
from headway.errors import NotFound
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.cluster.operation_to_schema import operation_out
from headway.services.cluster.operation_view import shows_server_paths, visible_event, visible_operation
from headway.services.read_model.topic_hub import operation_topic
from headway.web.page_routes import page_router
from headway.web.page_stream import LEAVE, PULSE_S, run_in_turn
from headway.web.rendering import render, templates
from headway.web.views.operation import OperationView, Steps

router = page_router()
LOOK_S = 1.0  # seconds; another server may write the events, so read at least this often
GATHER_S = 0.25  # minimum seconds between two reads; more when there is much to send
MOST_PER_S = 1_000_000  # characters per second and viewer: the HTML of an apply of a thousand nodes has 300,000
BATCH = 5000
OTHERS = 8


@dataclass(eq=False)
class _Looked:
    """An operation shared by all viewers who see the same of it: its events are read once, each read continues after
    the previous one, and the HTML is rendered once."""

    operation_id: str
    paths: bool  # see services.cluster.operation_view
    number: int = -1  # version of its topic at the last read
    _steps: Steps = field(default_factory=Steps)
    _progress: OperationView | None = None
    _drawn: str = ""
    _at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def pause_s(self) -> float:
        """Returns the seconds between two reads; more for large HTML."""
        return GATHER_S + len(self._drawn) / MOST_PER_S

    async def progress(self, state: AppState) -> OperationView:
        """Returns the progress; the same object until something changes. Raises NotFound."""
        async with self._lock:
            number, at = state.live.hub.version(operation_topic(self.operation_id)), time.monotonic()
            age = at - self._at
            if self._progress is None or (age >= self.pause_s and (number != self.number or age >= LOOK_S)):
                found = await self._read(state)
                if found != self._progress:
                    self._progress, self._drawn = found, ""
                self.number, self._at = number, at
            assert self._progress is not None
            return self._progress

    async def _read(self, state: AppState) -> OperationView:
        # read before the events: none is written after the operation's end
        row = await state.store.operations.get(self.operation_id)
        operation = operation_out(visible_operation(row, paths=self.paths))
        while rows := await state.store.operations.events_after(self.operation_id, self._steps.seq, limit=BATCH):
            self._steps.add_events([visible_event(event, row, paths=self.paths) for event in rows])
        return self._steps.of(operation)

    def drawn(self, state: AppState) -> str:
        """Returns the progress as HTML."""
        if not self._drawn:
            part = templates().get_template("parts/operation.html")
            # the page reloads at the end, and then has the link to the result for those who may see it
            self._drawn = part.render(v=self._progress, now=state.clock(), may_compare=False)
        return self._drawn


@router.get("/operations/{operation_id}")
async def operation_page(operation_id: str, state: State, who: AnyoneAllClusters) -> Response:
    """Returns the page of one operation."""
    progress = await _operation_view(state, operation_id, who).progress(state)
    who.require_cluster(progress.operation.cluster)
    known = await state.store.operations.recent(progress.operation.cluster, limit=OTHERS + 1)
    others = [operation_out(row) for row in known if row.id != operation_id and who.may_see_cluster(row.cluster)]
    there = await state.store.clusters.get(progress.operation.cluster) is not None
    return render(
        "operation.html",
        viewer=who,
        v=progress,
        others=others[:OTHERS],
        there=there,
        may_compare=who.may(Right.OPERATE_NODES),
    )


@router.get("/operations/{operation_id}/live")
async def operation_stream(operation_id: str, request: Request, state: State, who: AnyoneAllClusters) -> Response:
    """Returns the operation's progress as server-sent events."""
    who.require_cluster((await state.store.operations.get(operation_id)).cluster)
    return EventResponse(stream_while_allowed(request, events(state, operation_id, who), Right.READ), state, who)


def _operation_view(state: AppState, operation_id: str, who: Principal) -> _Looked:
    paths = shows_server_paths(who)
    found: _Looked = state.operation_views.setdefault(f"{operation_id} {paths}", _Looked(operation_id, paths))
    return found


async def events(state: AppState, operation_id: str, who: Principal) -> AsyncIterator[ServerSentEvent]:
    """Yields the progress whenever it changes, and a pulse; `leave` at the end, because the reloaded page links to
    what is next."""
    looked, shown, seen, pulse_at = _operation_view(state, operation_id, who), None, 0, time.monotonic()
    pulse = templates().get_template("parts/server_clock.html")

    async def news() -> list[ServerSentEvent]:
        nonlocal shown, seen, pulse_at
        before, shown = shown, await looked.progress(state)
        seen = looked.number
        found = [] if shown is before else [ServerSentEvent(looked.drawn(state), event="progress")]
        if time.monotonic() - pulse_at >= PULSE_S:
            pulse_at = time.monotonic()
            found.append(ServerSentEvent(pulse.render(now=state.clock()), event="pulse"))
        return found if shown.open else [*found, LEAVE]

    while not state.live.stopping.is_set():
        try:
            for event in await run_in_turn(state.live.stream_slots, news):
                yield event
        except NotFound:
            return
        if shown is not None and not shown.open:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(looked.pause_s):
                await state.live.stopping.wait()
        await state.live.hub.wait_for_change(operation_topic(operation_id), seen, LOOK_S)
