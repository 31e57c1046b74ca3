"""The Linux users of a cluster, as its file names them. People who sign in to the server are in `people`."""

from __future__ import annotations

from headway.schemas.access.linux_users import LinuxUserOut
from headway.services.app_state import AppState


async def list_linux_users(state: AppState, name: str) -> list[LinuxUserOut]:
    """Returns the Linux users that the cluster's file creates, with their teams. Raises NotFound."""
    cluster = await state.clusters.cached(name)
    leads = {
        user: [team.name for team in cluster.teams if user in team.leads]
        for team in cluster.teams
        for user in team.leads
    }
    return [
        LinuxUserOut(name=user.name, teams=list(user.teams), leads=leads.get(user.name, []), admin=user.admin)
        for user in cluster.users
    ]
