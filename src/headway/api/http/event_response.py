"""Responses of server-sent events. Logs of jobs are not events: byte_stream.py sends them."""

from __future__ import annotations

from collections.abc import AsyncIterable

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from headway.services.access.concurrency_limits import event_stream_slot
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState

PING_S = 10  # seconds between comments that keep an idle connection open; pages also get a pulse, see web.page_stream
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventResponse(EventSourceResponse):
    """Server-sent events of a person, who may have a limited number of them open. Raises TooManyAtOnce before the
    response begins."""

    def __init__(self, events: AsyncIterable[ServerSentEvent], state: AppState, who: Principal) -> None:
        super().__init__(events, ping=PING_S, headers=HEADERS)
        self._state, self._who = state, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with event_stream_slot(self._state, self._who):
            await super().__call__(scope, receive, send)
