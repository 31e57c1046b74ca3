"""What happened on a cluster, page by page into the past."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from headway.api import happenings
from headway.api.access import Anyone, State
from headway.api.paging import Cursor
from headway.web.html import render
from headway.web.route import page_router

router = page_router()
ROWS = 50
KINDS = {"": "all", "operation": "applies", "incident": "incidents", "deed": "by people"}


@router.get("/clusters/{name}/events")
async def page(
    name: str,
    state: State,
    who: Anyone,
    show: happenings.Kind = "",
    cursor: Cursor = "",
) -> Response:
    found = await happenings.happenings(name, state, who, show, ROWS, cursor)
    here = {"show": show} if show else {}
    return render(
        "events.html",
        viewer=who,
        name=name,
        tab="events",
        rows=found.happenings,
        kinds=KINDS,
        show=show,
        shown=len(found.happenings),
        newest=f"?{urlencode(here)}" if cursor else "",
        further=f"?{urlencode({**here, 'cursor': found.next})}" if found.next else "",
    )
