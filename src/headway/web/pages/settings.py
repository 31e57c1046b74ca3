"""How this server is set up, for admins: read-only, for settings are the environment's."""

from __future__ import annotations

from starlette.responses import Response

from headway.api import people
from headway.api.access import Admin, State
from headway.web.html import render
from headway.web.route import page_router

router = page_router()


@router.get("/settings")
async def page(state: State, who: Admin) -> Response:
    server = await people.server(state, who)
    return render("settings.html", viewer=who, here="settings", server=server, settings=state.settings)
