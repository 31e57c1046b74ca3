"""Users whom the cluster file alone does not decide on: those that the sign-in provider says are in a team, and those that
are locked because their person is disabled or removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from headway.domain.cluster import Cluster


def with_team_members(spec: Mapping[str, Any], members: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Returns the spec of a file with these users added to its teams. Teams that the file does not have, or has in a
    form that is refused later, are left as they are."""
    teams = spec.get("teams")
    if not isinstance(teams, Mapping):
        return dict(spec)
    return {**spec, "teams": {name: _with_users(team, members.get(name, ())) for name, team in teams.items()}}


def _with_users(team: Any, added: Sequence[str]) -> Any:
    """Returns the team with the users that it does not have yet."""
    users = team.get("users", []) if isinstance(team, Mapping) else None
    if not added or not isinstance(users, list):
        return team
    return {**team, "users": [*users, *(user for user in added if user not in users)]}


def without_users(cluster: Cluster, locked: Set[str]) -> Cluster:
    """Returns the cluster without these users, as if its file did not name them."""
    if not any(user.name in locked for user in cluster.users):
        return cluster
    teams = tuple(
        replace(
            team,
            users=tuple(user for user in team.users if user not in locked),
            leads=tuple(user for user in team.leads if user not in locked),
        )
        for team in cluster.teams
    )
    return replace(cluster, users=tuple(user for user in cluster.users if user.name not in locked), teams=teams)
