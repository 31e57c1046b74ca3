"""Models of the people who may sign in to the server."""

from __future__ import annotations

from pydantic import Field

from headway.domain.access.role import Role
from headway.schemas.base import RequestModel, ResponseModel


class PersonIn(RequestModel):
    """A person's role and Linux user on the clusters. If `user` is null, it stays as it is (a new person gets their own
    name). If it is "", the person has no Linux user and can only view."""

    role: Role
    user: str | None = Field(None, max_length=32)


class PersonOut(ResponseModel):
    """A person. `teams` are the teams of each cluster that they are in, by cluster. `provider` is true if they sign
    in through the sign-in provider, `provider_role` if it also sets their role at each sign-in; `provider_teams` are the
    teams that it put them in: TEAM of all clusters, or CLUSTER/TEAM. `disabled`: they can't sign in, and their Linux user is
    locked. `changes_due`: the clusters that have not locked it, or put it into its teams, yet, and why."""

    name: str
    role: str
    user: str = ""
    provider: bool = False
    provider_role: bool = False
    provider_teams: list[str] = []
    created_at: float = 0.0
    disabled: bool = False
    changes_due: dict[str, str] = {}
    teams: dict[str, list[str]] = {}
    leads: dict[str, list[str]] = {}
