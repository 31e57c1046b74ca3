"""The Linux users of a cluster."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import ANY, Page, Text, Words, contains
from headway.schemas.access.linux_users import LinuxUserOut
from headway.schemas.base import API_PREFIX
from headway.services.access import linux_users

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["teams"])


@router.get("/users")
async def list_linux_users(
    name: str, state: State, _: Anyone, page: Page, team: Words = ANY, q: Text = ""
) -> list[LinuxUserOut]:
    """Returns the Linux users that the cluster's file creates, with their teams."""
    found = [
        user
        for user in await linux_users.list_linux_users(state, name)
        if contains(q, user.name) and (not team or not team.isdisjoint(user.teams))
    ]
    return page.cut(found, lambda user: (user.name,))
