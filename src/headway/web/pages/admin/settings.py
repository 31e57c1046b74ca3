"""How this server is set up, for admins: read-only, for settings are the environment's."""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Admin, State
from headway.api.routers.access import people
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()


@router.get("/settings")
async def page(state: State, who: Admin) -> Response:
    server = await people.server(state, who)
    return render("settings.html", viewer=who, here="settings", server=server, settings=state.settings)
