"""What an operation does, live: its steps with their seconds, its error with what to do next.

GET /operations/ID        the page; it stands by itself, and is loaded again where no scripts run
GET /operations/ID/live   its progress as server-sent events: `progress` (the whole part as HTML), `pulse` and `leave`"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from headway.api.access import Everywhere, Right, State
from headway.api.going import while_allowed
from headway.api.live import operation_topic
from headway.api.shapes import event_out, operation_out
from headway.api.state import AppState
from headway.errors import NotFound
from headway.web.html import render, templates
from headway.web.route import page_router
from headway.web.stream import HEADERS, LEAVE, PULSE_S
from headway.wire.base import ErrorOut
from headway.wire.clusters import EventOut, OperationOut

router = page_router()
LOOK_S = 1.0  # another server may write the events: look at least this often
MOST_EVENTS = 20_000
OTHERS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One thing an operation does ("machines", a node, "accounts"), as its last line says it."""

    name: str
    text: str
    kind: str  # "running", "done" or "failed"
    warning: bool
    began: float
    seconds: float | None  # None while it runs


@dataclass(frozen=True)
class Progress:
    operation: OperationOut
    steps: tuple[Step, ...]

    @property
    def open(self) -> bool:
        return self.operation.state in ("queued", "running")

    @property
    def done(self) -> int:
        return sum(step.kind == "done" for step in self.steps)

    @property
    def error(self) -> ErrorOut | None:
        return self.operation.error

    @property
    def seconds(self) -> float | None:
        began, ended = self.operation.started_at, self.operation.finished_at
        return None if began is None or ended is None else ended - began


@router.get("/operations/{operation_id}")
async def operation(operation_id: str, state: State, who: Everywhere) -> Response:
    progress = await _progress(state, operation_id)
    who.must_reach(progress.operation.cluster)
    known = await state.store.operations(progress.operation.cluster, limit=OTHERS + 1)
    others = [operation_out(one) for one in known if one.id != operation_id and who.reaches(one.cluster)]
    there = await state.store.cluster(progress.operation.cluster) is not None
    return render("operation.html", viewer=who, v=progress, others=others[:OTHERS], there=there)


@router.get("/operations/{operation_id}/live")
async def live(operation_id: str, request: Request, state: State, who: Everywhere) -> Response:
    who.must_reach((await state.store.operation(operation_id)).cluster)
    return EventSourceResponse(while_allowed(request, _events(state, operation_id), Right.READ), headers=HEADERS)


async def _events(state: AppState, operation_id: str) -> AsyncIterator[ServerSentEvent]:
    """The part whenever it is another, and a pulse; `leave` at the end, for the page says then where to go on."""
    topic, before, told_at = operation_topic(operation_id), "", 0.0
    part = templates().get_template("parts/operation.html")
    pulse = templates().get_template("parts/now.html")
    while not state.live.stopping.is_set():
        number = state.live.hub.number(topic)
        try:
            progress = await _progress(state, operation_id)
        except NotFound:
            return
        now = state.clock()
        text = part.render(v=progress, now=now)
        if text != before:
            before = text
            yield ServerSentEvent(text, event="progress")
        if now - told_at >= PULSE_S:
            told_at = now
            yield ServerSentEvent(pulse.render(now=now), event="pulse")
        if not progress.open:
            yield LEAVE
            return
        await state.live.hub.changed(topic, number, LOOK_S)


async def _progress(state: AppState, operation_id: str) -> Progress:
    found = operation_out(await state.store.operation(operation_id))  # before the events: none is written after its end
    rows = await state.store.events_after(operation_id, 0, limit=MOST_EVENTS)
    return Progress(found, tuple(steps_of([event_out(row) for row in rows], ended=found.state in ("done", "failed"))))


def steps_of(events: Sequence[EventOut], *, ended: bool) -> list[Step]:
    """One row a step, in the order they began. A step that was open when the operation ended did not end well."""
    found: dict[str, Step] = {}
    for event in events:
        before = found.get(event.step)
        again = before is None or before.kind != "running"
        began = event.at if again or before is None else before.began
        failed = event.level == "error"
        kind = "failed" if failed else "done" if event.done else "running"
        took = event.seconds if event.seconds is not None else event.at - began
        found[event.step] = Step(
            event.step,
            event.text,
            kind,
            event.level == "warning" or bool(not again and before and before.warning),
            began,
            None if kind == "running" else took,
        )
    if not ended:
        return list(found.values())
    return [
        Step(s.name, s.text, "failed" if s.kind == "running" else s.kind, s.warning, s.began, s.seconds)
        for s in found.values()
    ]
