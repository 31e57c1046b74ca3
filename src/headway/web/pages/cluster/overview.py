"""The overview of a cluster, live. With ?job=ID it draws that job's loss."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.read_model.overview import read_overview
from headway.web.page_routes import page_router
from headway.web.page_stream import Parts, render_pulse, stream_parts
from headway.web.rendering import render
from headway.web.views import overview as view

router = page_router()


@router.get("/clusters/{name}", response_model=None)
async def overview_page(name: str, state: State, who: Anyone, job: str = "") -> Response:
    """Returns the cluster's overview."""
    chosen = _job_id(job)
    return render(
        "overview.html",
        viewer=who,
        name=name,
        tab="overview",
        job=chosen,
        parts=await _parts(state, name, chosen),
        pulse=render_pulse(state, name),
    )


@router.get("/clusters/{name}/live", response_model=None)
async def overview_stream(name: str, request: Request, state: State, who: Anyone, job: str = "") -> Response:
    """Returns the changes of the overview as server-sent events."""

    async def make(_: Principal) -> Parts:
        return await _parts(state, name, _job_id(job))

    return stream_parts(request, state, who, name, make, prefix="overview/")


async def _parts(state: AppState, name: str, job: int | None) -> Parts:
    """Returns the page's parts. They are computed once per reading for all viewers who chose the same job."""
    found = await read_overview(state, name)
    chosen = job if job in state.live.snapshot(name).by_id else None
    parts: Parts | None = found.derived.get(chosen)
    if parts is None:
        keys = view.assign_keys(state.job_keys.setdefault(name, {}), found.jobs)
        parts = found.derived[chosen] = view.overview_parts(found, keys, chosen)
    return parts


def _job_id(text: str) -> int | None:
    """Returns the job id in the address; None if it is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
