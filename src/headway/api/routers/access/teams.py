"""A cluster's teams and Linux users."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import ANY, Page, Text, Words, contains
from headway.schemas.people import TeamsOut, UserOut
from headway.services.access.teams import list_teams, list_users

router = APIRouter(prefix="/clusters/{name}", tags=["teams"])


@router.get("/teams")
async def teams(name: str, state: State, who: Anyone, page: Page, user: Words = ANY, q: Text = "") -> TeamsOut:
    """Returns the teams of the cluster's file. A team's usage is visible to its own people, operators and admins."""
    report = await list_teams(state, who, name)
    found = [team for team in report.teams if contains(q, team.name) and (not user or not user.isdisjoint(team.users))]
    return report.model_copy(update={"teams": page.cut(found, lambda team: (team.name,))})


@router.get("/users")
async def users(name: str, state: State, _: Anyone, page: Page, team: Words = ANY, q: Text = "") -> list[UserOut]:
    """Returns the Linux users that the cluster's file creates, with their teams."""
    found = [
        user
        for user in await list_users(state, name)
        if contains(q, user.name) and (not team or not team.isdisjoint(user.teams))
    ]
    return page.cut(found, lambda user: (user.name,))
