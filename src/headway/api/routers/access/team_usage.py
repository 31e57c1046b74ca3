"""The share and usage of a cluster's teams."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import ANY, Page, Text, Words, contains
from headway.schemas.access.team_usage import TeamsOut
from headway.schemas.base import API_PREFIX
from headway.services.access.team_usage import read_team_usage

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["teams"])


@router.get("/teams")
async def list_teams(name: str, state: State, who: Anyone, page: Page, user: Words = ANY, q: Text = "") -> TeamsOut:
    """Returns the teams of the cluster's file. A team's usage is visible to its own people, operators and admins."""
    report = await read_team_usage(state, who, name)
    found = [team for team in report.teams if contains(q, team.name) and (not user or not user.isdisjoint(team.users))]
    return report.model_copy(update={"teams": page.cut(found, lambda team: (team.name,))})
