"""Groups: a provider lists, adds, changes and removes them. Members get the roles and teams of the server's settings."""

from __future__ import annotations

from collections.abc import Collection

from headway.errors import Conflict
from headway.schemas.access.scim import GroupIn, PatchIn, ScimGroupOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.scim.filter_parser import parse_filter
from headway.services.scim.patches import GroupPatch, patched_group
from headway.services.scim.people_sync import provider_settings, sync_members
from headway.services.scim.scim_fault import ScimFault
from headway.services.scim.users import meta, resource_reference
from headway.store import ProvisionedGroup, ProvisionedUser
from headway.store.access.scim import GroupAsk

_FIELDS = {
    "id": "id", "displayname": "display_name", "externalid": "external_id", "members": "member", "members.value": "member",
}  # fmt: skip


async def list_groups(
    state: AppState, where: str, start: int, count: int, *, with_members: bool = True
) -> tuple[int, list[ScimGroupOut]]:
    """Returns (number of groups that fit the filter `where`, `count` of them from number `start` on). Raises ScimFault."""
    ask = GroupAsk(**parse_filter(where, _FIELDS))
    total, rows = await state.store.scim.groups(ask, start=start, limit=count)
    return total, [await _group_out(state, row, with_members=with_members) for row in rows]


async def get_group(state: AppState, group_id: str, *, with_members: bool = True) -> ScimGroupOut:
    """Returns a group. Raises ScimFault if there is none."""
    return await _group_out(state, await _existing(state, group_id), with_members=with_members)


async def add_group(state: AppState, who: Principal, sent: GroupIn) -> ScimGroupOut:
    """Adds a group. Raises ScimFault if there is such a group, or no such member."""
    provider_settings(state)
    members = {row.value for row in sent.members or ()}
    await _need_users(state, members)
    made = await _saved(state, "", sent.display_name, sent.external_id, members)
    await write_audit_line(state, who, "group.add", sent.display_name, members=len(members))
    await sync_members(state, members)
    return await get_group(state, made)


async def replace_group(state: AppState, who: Principal, group_id: str, sent: GroupIn) -> ScimGroupOut:
    """Replaces a group's name and, if it has them, members. Raises ScimFault."""
    row = await _existing(state, group_id)
    before = await _member_ids(state, row.id)
    members = before if sent.members is None else frozenset(one.value for one in sent.members)
    await _save(
        state, who, row, before, GroupPatch(sent.display_name, sent.external_id or row.external_id, members, members)
    )
    return await get_group(state, group_id)


async def patch_group(state: AppState, who: Principal, group_id: str, patch: PatchIn) -> None:
    """Changes a group's name, or adds and removes members. Raises ScimFault."""
    row = await _existing(state, group_id)
    before = await _member_ids(state, row.id)
    await _save(
        state, who, row, before, patched_group(GroupPatch(row.display_name, row.external_id, before), patch.operations)
    )


async def delete_group(state: AppState, who: Principal, group_id: str) -> None:
    """Removes a group. Raises ScimFault."""
    row = await _existing(state, group_id)
    members = await _member_ids(state, row.id)
    await state.store.scim.delete_group(row.id)
    await write_audit_line(state, who, "group.remove", row.display_name, members=len(members))
    await sync_members(state, members)


async def _save(
    state: AppState, who: Principal, row: ProvisionedGroup, before: frozenset[str], now: GroupPatch
) -> None:
    added, removed = now.members - before, before - now.members
    renamed = (now.display_name, now.external_id) != (row.display_name, row.external_id)
    await _need_users(state, added)
    if renamed:
        await _saved(state, row.id, now.display_name, now.external_id, None)
    if added or removed:
        await state.store.scim.change_members(row.id, added, removed)
    detail = {"added": len(added), "removed": len(removed), "was": row.display_name}
    await write_audit_line(state, who, "group.change", now.display_name, **detail)
    # Also those whom the request names without need: an earlier one may have ended before this line.
    await sync_members(state, now.named | (before | now.members if renamed else added | removed))


async def _saved(
    state: AppState, group_id: str, display_name: str, external_id: str, members: Collection[str] | None
) -> str:
    """Stores a group; returns its id. Raises ScimFault if another one has the name."""
    try:
        return await state.store.scim.save_group(
            group_id, display_name, external_id, None if members is None else sorted(members)
        )
    except Conflict as error:
        raise ScimFault(
            error.message, hint="find it by a filter on displayName, and change it", scim_type="uniqueness", status=409
        ) from None


async def _need_users(state: AppState, ids: Collection[str]) -> None:
    unknown = sorted(set(ids) - (await state.store.scim.people_of(ids)).keys())
    if unknown:
        raise ScimFault(
            f"there is no user {unknown[0]}; members are users, by their id",
            hint="add the user first: POST /scim/v2/Users",
        )


async def _member_ids(state: AppState, group_id: str) -> frozenset[str]:
    return frozenset(row.id for row in await state.store.scim.members(group_id))


async def _existing(state: AppState, group_id: str) -> ProvisionedGroup:
    _, rows = await state.store.scim.groups(GroupAsk(id=group_id), limit=1)
    if not rows:
        raise ScimFault(
            f"there is no group {group_id[:64]}", hint="list groups: GET /scim/v2/Groups", scim_type="", status=404
        )
    return rows[0]


async def _group_out(state: AppState, row: ProvisionedGroup, *, with_members: bool) -> ScimGroupOut:
    members: tuple[ProvisionedUser, ...] = await state.store.scim.members(row.id) if with_members else ()
    return ScimGroupOut(
        id=row.id,
        display_name=row.display_name,
        external_id=row.external_id or None,
        members=[resource_reference(state, "Users", member.id, member.user_name) for member in members],
        meta=meta(state, "Group", row.id, row.created_at, row.changed_at),
    )
