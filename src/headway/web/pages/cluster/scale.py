"""The page that changes the number of nodes: the groups, a form, the planned changes, and a confirmation.

GET  /clusters/NAME/scale          the groups and the form
POST /clusters/NAME/scale          shows what these numbers would change
POST /clusters/NAME/scale/apply    queues exactly that change
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import Admin, Anyone, Planner, State
from headway.api.http.failure_audit import audit_failure
from headway.errors import HeadwayError, Refused
from headway.schemas.clusters import ChangeSetOut, ScaleGroupsIn
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.cluster import clusters, planning
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.changeset import grouped
from headway.web.views.deadline_field import deadline_s
from headway.web.views.overview import groups_view

router = page_router()
_NODES = "nodes-"  # prefix of the form fields, one per group


@router.get("/clusters/{name}/scale")
async def scale_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page with the groups and the form."""
    return await _page(name, state, who, {})


@router.post("/clusters/{name}/scale")
async def plan_scale(name: str, request: Request, state: State, who: Planner) -> Response:
    """Returns the page with the planned changes."""
    sent = await _sent(request)
    try:
        counts = await _parse_counts(name, state, sent)
        changes = await planning.plan_scale(state, who, name, ScaleGroupsIn(groups=counts))
    except HeadwayError as error:
        return await _page(name, state, who, sent, error=error)
    return await _page(name, state, who, sent, changes=changes)


@router.post("/clusters/{name}/scale/apply")
async def apply_scale(name: str, request: Request, state: State, who: Admin) -> Response:
    """Queues the change and redirects to its progress."""
    sent = await _sent(request)
    try:
        counts, minutes_s = await _parse_counts(name, state, sent), deadline_s(sent.get("deadline", ""))
        scale_request = ScaleGroupsIn(
            groups=counts,
            digest=sent.get("digest", ""),
            confirmed=bool(sent.get("confirmed")),
            deadline_s=minutes_s,
        )
        operation = await clusters.scale_cluster(state, who, name, scale_request)
    except HeadwayError as error:
        await audit_failure(request, error)
        return await _page(name, state, who, sent, error=error)
    return RedirectResponse(f"/operations/{operation.id}", status_code=303)


async def _page(
    name: str,
    state: AppState,
    who: Principal,
    sent: Mapping[str, str],
    *,
    changes: ChangeSetOut | None = None,
    error: HeadwayError | None = None,
) -> Response:
    view = groups_view(cluster_out(await state.clusters.row(name), state.live.snapshot(name)))
    typed = {group.name: sent.get(_NODES + group.name, str(group.nodes)) for group in view.rows}
    return render(
        "scale.html",
        status=error.http_status if error else 200,
        viewer=who,
        name=name,
        tab="nodes",
        v=view,
        typed=typed,
        deadline=sent.get("deadline", ""),
        changes=changes,
        groups=grouped(changes) if changes else [],
        error=error,
        may_plan=who.may(Right.PLAN_CLUSTER),
        may=who.may(Right.ADMIN),
    )


async def _parse_counts(name: str, state: AppState, sent: Mapping[str, str]) -> dict[str, int]:
    """Returns the groups whose number differs from the file's. Raises Refused."""
    view = groups_view(cluster_out(await state.clusters.row(name), state.live.snapshot(name)))
    found: dict[str, int] = {}
    for group in view.rows:
        text = sent.get(_NODES + group.name, "").strip()
        if group.idle_s is not None or not text:
            continue
        if re.fullmatch(r"-\d+", text, re.ASCII):
            raise Refused(
                f"the number of nodes for {group.name} must be at least 0, not {text[:20]}",
                hint="give a number from 0 to 20000",
            )
        if not (text.isascii() and text.isdigit()) or int(text) > 20_000:
            raise Refused(
                f"{text[:20]!r} is not a number of nodes for {group.name}", hint="give a number from 0 to 20000"
            )
        if int(text) != group.nodes:
            found[group.name] = int(text)
    if not found:
        raise Refused("every group has that many nodes already", hint="give another number")
    return found


async def _sent(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=200) as form:
        return {key: value for key, value in form.multi_items() if isinstance(value, str)}
