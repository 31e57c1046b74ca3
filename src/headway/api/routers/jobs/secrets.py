"""Secrets of jobs. No route returns a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Member, State
from headway.api.http.pagination import Page
from headway.schemas.base import API_PREFIX
from headway.schemas.job_secrets import SecretChangedOut, SecretIn, SecretOut
from headway.schemas.submission.job_field_types import SecretName
from headway.services.job_secrets import manage

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/job-secrets", tags=["jobs"])


@router.get("")
async def list_secrets(name: str, state: State, who: Member, page: Page) -> list[SecretOut]:
    """Returns the person's secrets and those of their teams, without values; for admins all."""
    return page.cut(await manage.list_secrets(state, who, name), lambda one: (one.name, one.user, one.team))


@router.put("/{secret}", name="put")
async def put_secret(name: str, secret: SecretName, body: SecretIn, state: State, who: Member) -> SecretChangedOut:
    """Stores a secret of the person, or of a team that they lead. It replaces an earlier one of the name."""
    return await manage.set_secret(state, who, name, secret, body)


@router.delete("/{secret}", name="remove")
async def remove_secret(
    name: str,
    secret: SecretName,
    state: State,
    who: Member,
    team: Annotated[str, Query(max_length=64)] = "",
    user: Annotated[str, Query(max_length=64, description="another Linux user (admins only)")] = "",
) -> SecretChangedOut:
    """Removes a secret. Jobs that have not started yet fail without it."""
    return await manage.remove_secret(state, who, name, secret, team=team, user=user)
