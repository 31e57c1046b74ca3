"""A cluster's teams: fair share compared with use, and the viewer's own limits."""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.domain.dataset import format_bytes
from headway.services.access.own_limits import read_own_limits
from headway.services.access.team_usage import read_team_usage
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()


@router.get("/clusters/{name}/teams")
async def teams_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page of teams."""
    found = await read_team_usage(state, who, name)
    seen = any(team.use_fraction is not None for team in found.teams)
    mine = await read_own_limits(state, who, name)
    return render(
        "teams.html", viewer=who, name=name, tab="teams", found=found, seen=seen, mine=mine, size=format_bytes
    )
