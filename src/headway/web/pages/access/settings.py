"""The server's settings, for admins. Read-only: they come from the environment."""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Admin, State
from headway.services.access.people import describe_server
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()


@router.get("/settings")
async def settings_page(state: State, who: Admin) -> Response:
    """Returns the page of the server's settings."""
    server = await describe_server(state, who)
    return render("settings.html", viewer=who, here="settings", server=server, settings=state.settings)
