"""Server-sent events of a page: what changed on it, a pulse, and `leave` when the page must be loaded again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from sse_starlette import ServerSentEvent

from headway.api.auth.dependencies import authenticate
from headway.api.http.event_response import EventResponse
from headway.errors import HeadwayError, NotFound, NotSignedIn
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.interruptible_stream import END, next_piece
from headway.web.rendering import compact_json, render_part, templates
from headway.web.views.banners import StateView, cluster_banners

PULSE_S = 10.0  # seconds between pulses; the browser warns after three missing ones
MAX_TURN_S = 0.1  # seconds after which a stream gives its slot to the next one
COALESCE_S = 0.15  # seconds; changes within this time are sent together
LEAVE = ServerSentEvent("now", event="leave")  # the reloaded page gives the reason

# The parts of a page, by name: values in which nothing changes by the clock alone.
Parts = Mapping[str, object]
MakeParts = Callable[[Principal], Awaitable[Parts]]


def stream_parts(
    request: Request, state: AppState, who: Principal, name: str, make: MakeParts, *, prefix: str = ""
) -> EventResponse:
    """Returns a stream of all parts once, then of changed ones. Event NAME contains parts/{prefix}NAME.html, or the
    value as JSON if it is a dict; `state` and `cluster_banners` contain the cluster's state and problems. If the session has
    ended or the cluster or job no longer exists, `leave` makes the browser leave the page."""
    return EventResponse(_events(request, state, name, make, prefix), state, who)


async def _events(
    request: Request, state: AppState, name: str, make: MakeParts, prefix: str
) -> AsyncIterator[ServerSentEvent]:
    before: dict[str, object] = {}
    try:
        if await authenticate(request) is None:
            raise NotSignedIn("no person is signed in")
        await state.clusters.shared_row(name)  # an unknown cluster is not watched
        async for _ in update_ticks(state.live.watch_changes(name)):
            news = partial(_news, request, state, name, make, prefix, before)
            for event in await run_in_turn(state.live.stream_slots, news):
                yield event
            if state.live.stopping.is_set():
                return
    except (NotSignedIn, NotFound):
        yield LEAVE
    except HeadwayError:
        return


async def run_in_turn(
    streams: asyncio.Semaphore, news: Callable[[], Coroutine[Any, Any, list[ServerSentEvent]]]
) -> list[ServerSentEvent]:
    """Runs `news` with a limit on how many streams compute at a time. A stream that takes longer than MAX_TURN_S,
    for example because it waits for a machine, gives its slot to the next one."""
    async with streams:
        making = asyncio.create_task(news())
        try:
            await asyncio.wait({making}, timeout=MAX_TURN_S)
        except asyncio.CancelledError:
            making.cancel()
            raise
    try:
        return await making
    finally:
        making.cancel()


async def _news(
    request: Request, state: AppState, name: str, make: MakeParts, prefix: str, before: dict[str, object]
) -> list[ServerSentEvent]:
    """Returns events for the changes since `before`, which is updated, and a pulse."""
    who = await authenticate(request)
    if who is None:
        raise NotSignedIn("no person is signed in")
    events = []
    row = await state.clusters.shared_row(name)
    out = cluster_out(row, state.live.snapshot(name))
    for word, shown in (("state", StateView(out.state, out.simulated_gpus)), ("cluster_banners", cluster_banners(out))):
        if before.get(f"/{word}", before) != shown:
            before[f"/{word}"] = shown
            events.append(ServerSentEvent(render_part(word, shown), event=word))
    for key, value in (await _make_parts(make, who)).items():
        last = before.get(key, before)
        if _another(state, name, last, value):
            before[key] = value
            events.append(ServerSentEvent(_text(state, name, f"{prefix}{key}", value), event=key))
    events.append(ServerSentEvent(render_pulse(state, name), event="pulse"))
    return events


def _another(state: AppState, name: str, last: object, value: object) -> bool:
    """Returns whether a part has changed. Compared once for all viewers who were shown the same object."""
    if last is value:
        return False
    compared = state.live.snapshot(name).derived.setdefault("compared", {})
    key = (id(last), id(value))
    if key not in compared:
        compared[key] = (last, value, last != value)  # both are kept so that their id() is not reused
    return bool(compared[key][2])


def _text(state: AppState, name: str, template: str, value: object) -> str:
    """Returns the event's text: HTML, or JSON of a dict. A part that many viewers share (the same object) is rendered
    once per reading."""
    kept = state.live.snapshot(name).derived
    key = (template, id(value))
    if key not in kept or kept[key][0] is not value:
        text = compact_json(value) if isinstance(value, dict) else render_part(template, value)
        kept[key] = (value, text)
    return str(kept[key][1])


async def _make_parts(make: MakeParts, who: Principal) -> Parts:
    """Returns the parts; none if something does not answer: the page keeps what it shows, and a banner gives the reason."""
    try:
        return await make(who)
    except (NotSignedIn, NotFound):
        raise
    except HeadwayError:
        return {}


def render_pulse(state: AppState, name: str) -> str:
    """Returns the HTML with the time of the figures."""
    snapshot = state.live.snapshot(name)
    values = {"as_of": snapshot.as_of, "stale": snapshot.stale, "now": state.clock()}
    return templates().get_template("parts/as_of.html").render(**values)


async def update_ticks(wakes: AsyncIterator[None]) -> AsyncIterator[None]:
    """Yields at once, then after each wake, and every PULSE_S seconds without one. Ends with `wakes`."""
    pending = next_piece(wakes)
    try:
        await asyncio.sleep(0)  # let it subscribe before the first reading, or a change in between would be missed
        yield
        while True:
            done, _ = await asyncio.wait({pending}, timeout=PULSE_S)
            if done:
                if pending.result() is END:
                    return
                pending = next_piece(wakes)
                await asyncio.sleep(COALESCE_S)
            yield
    finally:
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pending
        close = getattr(wakes, "aclose", None)
        if close:
            await close()
