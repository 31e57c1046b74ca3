"""SCIM 2.0: the identity provider adds, changes and removes people and groups. It has an address of its own and its own
media type, and needs a token of scope `scim`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from headway.api.auth.dependencies import Provisioner, State
from headway.schemas.access.scim import (
    HEADWAY_USER_SCHEMA,
    MOST_FILTER,
    MOST_RESULTS,
    SCIM_JSON,
    SCIM_PREFIX,
    GroupIn,
    ListOut,
    PatchIn,
    UserIn,
)
from headway.services.scim import discovery, groups, users
from headway.services.scim.filter_parser import plain_name
from headway.services.scim.scim_fault import ScimFault

router = APIRouter(prefix=SCIM_PREFIX, include_in_schema=False)
_ALWAYS = frozenset({"schemas", "id", "meta"})
Filter = Annotated[str, Query(max_length=MOST_FILTER)]
StartIndex = Annotated[int, Query(alias="startIndex")]
Attributes = Annotated[str, Query(max_length=MOST_FILTER)]
Excluded = Annotated[str, Query(alias="excludedAttributes", max_length=MOST_FILTER)]
# A start index beyond it is not the number of a row in any database.
_LAST = 2**31 - 1


@router.get("/ServiceProviderConfig")
async def service_provider_config(state: State, _: Provisioner) -> Response:
    """Returns which parts of SCIM the server has."""
    return _answer(discovery.service_provider_config(state.settings.url))


@router.get("/ResourceTypes")
async def resource_types(state: State, _: Provisioner) -> Response:
    """Returns the types of resources."""
    return _whole_list(discovery.resource_types(state.settings.url))


@router.get("/ResourceTypes/{resource_type}")
async def resource_type(resource_type: str, state: State, _: Provisioner) -> Response:
    """Returns one type of resources."""
    return _one(discovery.resource_types(state.settings.url), resource_type)


@router.get("/Schemas")
async def list_schemas(state: State, _: Provisioner) -> Response:
    """Returns the attributes of users and groups."""
    return _whole_list(discovery.schemas(state.settings.url))


@router.get("/Schemas/{schema}")
async def get_schema(schema: str, state: State, _: Provisioner) -> Response:
    """Returns the attributes of one schema."""
    return _one(discovery.schemas(state.settings.url), schema)


@router.get("/Users")
async def list_users(
    state: State,
    _: Provisioner,
    filter: Filter = "",  # noqa: A002
    start: StartIndex = 1,
    count: int = 100,
    attributes: Attributes = "",
    excluded: Excluded = "",
) -> Response:
    """Returns a page of the users that the filter names."""
    first, size = _page(start, count)
    total, found = await users.list_users(state, filter, first - 1, size)
    return _list(total, first, [_shown(row, attributes, excluded) for row in found])


@router.post("/Users")
async def add_user(body: UserIn, state: State, who: Provisioner) -> Response:
    """Adds a person."""
    made = await users.add_user(state, who, body)
    return _answer(_shown(made), 201, {"location": made.meta.location})


@router.get("/Users/{user_id}")
async def get_user(
    user_id: str, state: State, _: Provisioner, attributes: Attributes = "", excluded: Excluded = ""
) -> Response:
    """Returns a user."""
    return _answer(_shown(await users.get_user(state, user_id), attributes, excluded))


@router.put("/Users/{user_id}")
async def replace_user(user_id: str, body: dict[str, Any], state: State, who: Provisioner) -> Response:
    """Replaces a user's attributes."""
    return _answer(_shown(await users.replace_user(state, who, user_id, body)))


@router.patch("/Users/{user_id}")
async def patch_user(user_id: str, body: PatchIn, state: State, who: Provisioner) -> Response:
    """Changes attributes of a user; `active: false` disables the person."""
    return _answer(_shown(await users.patch_user(state, who, user_id, body)))


@router.delete("/Users/{user_id}")
async def delete_user(user_id: str, state: State, who: Provisioner) -> Response:
    """Removes a person."""
    await users.delete_user(state, who, user_id)
    return Response(status_code=204)


@router.get("/Groups")
async def list_groups(
    state: State,
    _: Provisioner,
    filter: Filter = "",  # noqa: A002
    start: StartIndex = 1,
    count: int = 100,
    attributes: Attributes = "",
    excluded: Excluded = "",
) -> Response:
    """Returns a page of the groups that the filter names."""
    first, size = _page(start, count)
    wanted = _wants_members(attributes, excluded)
    total, found = await groups.list_groups(state, filter, first - 1, size, with_members=wanted)
    return _list(total, first, [_shown(row, attributes, excluded) for row in found])


@router.post("/Groups")
async def add_group(body: GroupIn, state: State, who: Provisioner) -> Response:
    """Adds a group."""
    made = await groups.add_group(state, who, body)
    return _answer(_shown(made), 201, {"location": made.meta.location})


@router.get("/Groups/{group_id}")
async def get_group(
    group_id: str, state: State, _: Provisioner, attributes: Attributes = "", excluded: Excluded = ""
) -> Response:
    """Returns a group with its members."""
    found = await groups.get_group(state, group_id, with_members=_wants_members(attributes, excluded))
    return _answer(_shown(found, attributes, excluded))


@router.put("/Groups/{group_id}")
async def replace_group(group_id: str, body: GroupIn, state: State, who: Provisioner) -> Response:
    """Replaces a group's name and members."""
    return _answer(_shown(await groups.replace_group(state, who, group_id, body)))


@router.patch("/Groups/{group_id}")
async def patch_group(group_id: str, body: PatchIn, state: State, who: Provisioner) -> Response:
    """Adds and removes members of a group, or renames it."""
    await groups.patch_group(state, who, group_id, body)
    return Response(status_code=204)


@router.delete("/Groups/{group_id}")
async def delete_group(group_id: str, state: State, who: Provisioner) -> Response:
    """Removes a group."""
    await groups.delete_group(state, who, group_id)
    return Response(status_code=204)


def _page(start: int, count: int) -> tuple[int, int]:
    """Returns (number of the first row, number of rows) within the bounds. RFC 7644 reads values below them as the least."""
    return min(max(1, start), _LAST), min(max(0, count), MOST_RESULTS)


def _names(text: str) -> set[str]:
    """Returns the names of attributes in a list, in lower case and without their schema."""
    return {plain_name(word.strip()) for word in text.split(",") if word.strip()}


def _wants_members(attributes: str, excluded: str) -> bool:
    return "members" not in _names(excluded) and (not attributes or "members" in _names(attributes))


def _shown(resource: BaseModel, attributes: str = "", excluded: str = "") -> dict[str, Any]:
    """Returns a resource as JSON, with only these attributes or without these."""
    found = resource.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not found.get(HEADWAY_USER_SCHEMA, True):
        del found[HEADWAY_USER_SCHEMA]
    wanted, hidden = _names(attributes), _names(excluded)
    return {
        name: value
        for name, value in found.items()
        if name in _ALWAYS or (name.lower() not in hidden and (not attributes or name.lower() in wanted))
    }


def _answer(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(content, status, headers, media_type=SCIM_JSON)


def _list(total: int, start: int, rows: list[dict[str, Any]]) -> Response:
    found = ListOut(total_results=total, start_index=start, items_per_page=len(rows), resources=rows)
    return _answer(found.model_dump(mode="json", by_alias=True))


def _whole_list(rows: list[dict[str, Any]]) -> Response:
    return _list(len(rows), 1, rows)


def _one(rows: list[dict[str, Any]], wanted: str) -> Response:
    found = next((row for row in rows if row["id"].lower() == wanted.lower()), None)
    if found is None:
        raise ScimFault(
            f"there is no {wanted[:80]}",
            hint=f"there are {', '.join(row['id'] for row in rows)}",
            scim_type="",
            status=404,
        )
    return _answer(found)
