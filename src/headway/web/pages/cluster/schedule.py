"""The schedule of a cluster as a chart of nodes by time, and the form for reservations and maintenance windows.

GET  /clusters/NAME/schedule          the chart, its table, and the form
GET  /clusters/NAME/schedule/live     changes of the table as server-sent events; the chart then loads its data from the API
POST /clusters/NAME/schedule          shows what a new window, or the removal of one, would change, and the jobs it affects
POST /clusters/NAME/schedule/apply    queues exactly that change
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import Admin, Anyone, Planner, State
from headway.api.http.failure_audit import audit_failure
from headway.errors import HeadwayError, InvalidSpec
from headway.schemas.operations import OperationOut
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.nodes import planned_windows
from headway.services.nodes.planned_windows import WindowPlan
from headway.services.queue.schedule import get_schedule, schedule_of
from headway.web.page_routes import page_router
from headway.web.page_stream import Parts, render_pulse, stream_parts
from headway.web.rendering import render
from headway.web.views.changeset import grouped
from headway.web.views.schedule_page import NEW_WINDOW, schedule_table, window_of

router = page_router()


@router.get("/clusters/{name}/schedule")
async def schedule_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page of the schedule."""
    return await _page(name, state, who, {})


@router.get("/clusters/{name}/schedule/live", response_model=None)
async def schedule_stream(name: str, request: Request, state: State, who: Anyone) -> Response:
    """Returns the changes of the schedule's table as server-sent events."""

    async def make(viewer: Principal) -> Parts:
        cluster = await state.clusters.cached(name)
        schedule = schedule_of(state, cluster, state.live.snapshot(name))
        return {"table": schedule_table(name, schedule, may_change=viewer.may(Right.ADMIN))}

    return stream_parts(request, state, who, name, make, prefix="schedule_")


@router.post("/clusters/{name}/schedule")
async def plan_window(name: str, request: Request, state: State, who: Planner) -> Response:
    """Returns the page with the planned changes and the affected jobs."""
    sent = await _sent(request)
    try:
        if removed := sent.get("remove", ""):
            plan = await planned_windows.plan_removal(state, who, name, removed)
        else:
            window = window_of(sent)
            sent = {**sent, "window": window.name, "start_at": str(window.start)}
            plan = await planned_windows.plan_window(state, who, name, window)
    except HeadwayError as error:
        return await _page(name, state, who, sent, error=error)
    return await _page(name, state, who, sent, plan=plan)


@router.post("/clusters/{name}/schedule/apply")
async def apply_window(name: str, request: Request, state: State, who: Admin) -> Response:
    """Queues the change and redirects to its progress."""
    sent = await _sent(request)
    try:
        operation = await _apply(name, state, who, sent)
    except HeadwayError as error:
        await audit_failure(request, error)
        return await _page(name, state, who, sent, error=error)
    return RedirectResponse(f"/operations/{operation.id}", status_code=303)


async def _apply(name: str, state: AppState, who: Principal, sent: Mapping[str, str]) -> OperationOut:
    digest, confirmed = sent.get("digest", ""), bool(sent.get("confirmed"))
    if removed := sent.get("remove", ""):
        return await planned_windows.remove_window(state, who, name, removed, digest=digest, confirmed=confirmed)
    return await planned_windows.add_window(state, who, name, window_of(sent), digest=digest, confirmed=confirmed)


async def _page(
    name: str,
    state: AppState,
    who: Principal,
    sent: Mapping[str, str],
    *,
    plan: WindowPlan | None = None,
    error: HeadwayError | None = None,
) -> Response:
    _, cluster = await state.clusters.get(name)
    schedule = await get_schedule(state, name)
    return render(
        "schedule.html",
        status=error.http_status if error else 200,
        viewer=who,
        name=name,
        tab="schedule",
        table=schedule_table(name, schedule, may_change=who.may(Right.ADMIN)),
        nodes=len(schedule.nodes),
        teams=[team.name for team in cluster.teams],
        sent={**NEW_WINDOW, **sent},
        plan=plan,
        groups=grouped(plan.changes) if plan else [],
        error=error,
        faults=error.faults if isinstance(error, InvalidSpec) else (),
        pulse=render_pulse(state, name),
        may_plan=who.may(Right.PLAN_CLUSTER),
        may=who.may(Right.ADMIN),
    )


async def _sent(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=50) as form:
        return {key: value for key, value in form.multi_items() if isinstance(value, str)}
