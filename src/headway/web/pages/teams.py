"""A cluster's teams: share against use."""

from __future__ import annotations

from starlette.responses import Response

from headway.api import teams
from headway.api.access import Anyone, State
from headway.web.html import render
from headway.web.route import page_router

router = page_router()


@router.get("/clusters/{name}/teams")
async def page(name: str, state: State, who: Anyone) -> Response:
    found = await teams.teams_of(name, state, who)
    seen = any(team.use_fraction is not None for team in found.teams)
    return render("teams.html", viewer=who, name=name, tab="teams", found=found, seen=seen)
