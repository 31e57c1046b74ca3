"""Users of teams whom the cluster file does not name: the sign-in provider says that they belong there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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
