"""Adds the dashboard to the server's app: pages, their live updates, static files.

GET /clusters/NAME          one cluster; ?job=ID draws that job's loss
GET /clusters/NAME/live     its changes, as server-sent events: one event per changed part (HTML), `chart` (JSON),
                            `pulse` (the time of the figures), and `leave` when the page must be loaded again
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from headway.errors import HeadwayError, NotFound, NotSignedIn
from headway.web import documentation
from headway.web.event_stream import HEADERS, LEAVE, run_in_turn, update_ticks
from headway.web.live_data import Live, Principal, Snapshot, Viewer
from headway.web.page_routes import page_router
from headway.web.pages import PAGES
from headway.web.rendering import Documentation, compact_json, page_pulse, render, render_part, static_files
from headway.web.view_models import Page
from headway.web.views.cluster import JobKeys
from headway.web.views.cluster import page as view_of


def mount(app: FastAPI, live: Live, principal: Principal) -> None:
    """Adds the dashboard to `app`. Raises Refused if the browser libraries are missing."""
    app.mount("/static", static_files(), name="static")
    if documentation.site_is_built():
        app.mount("/docs", Documentation(directory=documentation.SITE, html=True), name="docs")
    app.include_router(_Dashboard(live, principal).router())
    for page in PAGES:
        app.include_router(page.router)


class _Dashboard:
    """The routes of a cluster's overview."""

    def __init__(self, live: Live, principal: Principal) -> None:
        self._live = live
        self._principal = principal
        self._keys = JobKeys()

    def router(self) -> APIRouter:
        router = page_router()
        add: Any = router.add_api_route
        for path, endpoint in (
            ("/clusters/{name}", self._cluster),
            ("/clusters/{name}/live", self._stream),
        ):
            add(path, endpoint, methods=["GET"], response_model=None)
        return router

    async def _viewer(self, request: Request) -> Viewer:
        viewer = await self._principal(request)
        if viewer is None:
            raise NotSignedIn("no person is signed in")
        return viewer

    async def _cluster(self, request: Request, name: str, job: str = "") -> Response:
        viewer = await self._viewer(request)
        page = self._page(await self._live.snapshot(name), _job_id(job))
        return render(
            "cluster.html",
            viewer=viewer,
            name=name,
            tab="overview",
            page=page,
            job=_job_id(job),
            chart=page.chart.message(),
        )

    async def _stream(self, request: Request, name: str, job: str = "") -> Response:
        return EventSourceResponse(self._events(request, name, _job_id(job)), headers=HEADERS)

    def _page(self, snapshot: Snapshot, job: int | None) -> Page:
        """Returns the page's parts. They are computed once per reading for all viewers who chose the same job."""
        page: Page | None = snapshot.kept.get(("page", job))
        if page is None:
            keys = self._keys.of(snapshot.status.cluster.name, snapshot.jobs)
            page = snapshot.kept["page", job] = view_of(snapshot, keys, job)
        return page

    async def _events(self, request: Request, name: str, job: int | None) -> AsyncIterator[ServerSentEvent]:
        """Yields all parts once, because the page may be older than the stream, then the changes. If the session has
        ended or the cluster is gone, `leave` makes the browser leave the page; after any other end the page
        reconnects by itself."""
        before: list[Page] = []
        try:
            await self._viewer(request)  # only viewers who may see this cluster are counted as watchers
            await self._live.snapshot(name)
            async for _ in update_ticks(self._live.subscribe(name)):
                for event in await run_in_turn(self._live.streams, partial(self._news, request, name, job, before)):
                    yield event
            await self._live.snapshot(name)
        except (NotSignedIn, NotFound):
            yield LEAVE
        except HeadwayError:
            return

    async def _news(self, request: Request, name: str, job: int | None, before: list[Page]) -> list[ServerSentEvent]:
        """Returns events for the changes since `before`, which is updated, and a pulse."""
        await self._viewer(request)
        snapshot = await self._live.snapshot(name)
        page, last = self._page(snapshot, job), before[0] if before else None
        key = ("changes", job, id(last))
        if key not in snapshot.kept:
            snapshot.kept[key] = (last, _changes(page, last))  # `last` is kept so that its id() is not reused
        before[:] = [page]
        events = [ServerSentEvent(text, event=event) for event, text in snapshot.kept[key][1]]
        return [*events, ServerSentEvent(page_pulse(page), event="pulse")]


def _changes(page: Page, before: Page | None) -> list[tuple[str, str]]:
    """Returns the events, as (name, text), that update a browser from `before` to `page`."""
    events = [(name, render_part(name, page.parts[name])) for name in page.changed(before)]
    if before is None or page.chart != before.chart:
        events.append(("chart", compact_json(page.chart.message(before.chart if before else None))))
    return events


def _job_id(text: str) -> int | None:
    """Returns the job id in the address; None if it is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
