"""The activity of a cluster: its past operations, incidents and actions, page by page."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import Cursor
from headway.services.cluster.activity import Kind, get_activity
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
ROWS = 50
KINDS = {"": "all", "operation": "applies", "incident": "incidents", "action": "by people"}


@router.get("/clusters/{name}/events")
async def activity_page(
    name: str,
    state: State,
    who: Anyone,
    show: Kind = "",
    cursor: Cursor = "",
) -> Response:
    """Returns one page of the cluster's history."""
    found = await get_activity(state, name, kind=show, limit=ROWS, cursor=cursor)
    here = {"show": show} if show else {}
    return render(
        "activity.html",
        viewer=who,
        name=name,
        tab="events",
        rows=found.activity,
        kinds=KINDS,
        show=show,
        shown=len(found.activity),
        newest=f"?{urlencode(here)}" if cursor else "",
        further=f"?{urlencode({**here, 'cursor': found.next})}" if found.next else "",
    )
