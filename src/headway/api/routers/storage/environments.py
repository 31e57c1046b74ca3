"""Software environments and their versions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BeforeValidator

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import Page
from headway.api.http.path_numbers import MAX_PATH_NUMBER, require_digits
from headway.schemas.base import API_PREFIX
from headway.schemas.operations import OperationOut
from headway.schemas.storage.environments import (
    EnvironmentDetailOut,
    EnvironmentIn,
    EnvironmentName,
    EnvironmentOut,
    EnvironmentRemoveIn,
)
from headway.services.storage import environments as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/environments", tags=["environments"])
VersionNumber = Annotated[int, BeforeValidator(require_digits), Path(ge=1, le=MAX_PATH_NUMBER)]


@router.get("")
async def list_environments(name: str, state: State, _: Anyone, page: Page) -> list[EnvironmentOut]:
    """Returns every version of every environment, by name and number."""
    return page.cut(await service.list_environments(state, name), lambda one: (one.name, one.version))


@router.post("", status_code=202, name="add")
async def add_environment(name: str, ask: EnvironmentIn, state: State, who: Member) -> OperationOut:
    """Queues the build of a version, in a job of the person. The operation's `kept` names its path."""
    return await service.add_environment(state, who, name, ask)


@router.get("/{environment}/{version}")
async def get_environment(
    name: str, environment: EnvironmentName, version: VersionNumber, state: State, _: Anyone
) -> EnvironmentDetailOut:
    """Returns one version, with its lock: every package with its version and hashes."""
    return await service.get_environment(state, name, environment, version)


@router.post("/{environment}/{version}/remove", status_code=202, name="remove")
async def remove_environment(
    name: str, environment: EnvironmentName, version: VersionNumber, ask: EnvironmentRemoveIn, state: State, who: Member
) -> OperationOut:
    """Queues the removal of a version. Refused with a conflict while the lineage of jobs names it, unless `force` is
    set."""
    return await service.remove_environment(state, who, name, environment, version, force=ask.force)
