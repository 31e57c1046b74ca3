"""Users: a provider lists, adds, changes and removes people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from headway.errors import Conflict
from headway.schemas.access.scim import (
    SCIM_PREFIX,
    HeadwayUser,
    Link,
    Meta,
    PatchIn,
    ScimUserOut,
    UserAttributes,
    UserIn,
)
from headway.services.access.audit import write_audit_line
from headway.services.access.oidc_claims import subject_of
from headway.services.access.people import delete_person, let_in, lock_out
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.scim.filter_parser import parse_filter
from headway.services.scim.patches import patched_user
from headway.services.scim.people_sync import SOURCE, provider_settings, sync_person
from headway.services.scim.scim_fault import ScimFault
from headway.store import Person, ProvisionedGroup, ProvisionedUser
from headway.store.access.scim import UserAsk

_FIELDS = {"id": "id", "username": "user_name", "externalid": "external_id"}


async def list_users(state: AppState, where: str, start: int, count: int) -> tuple[int, list[ScimUserOut]]:
    """Returns (number of users that fit the filter `where`, `count` of them from number `start` on). Raises ScimFault."""
    ask = UserAsk(**parse_filter(where, _FIELDS))
    total, rows = await state.store.scim.users(ask, start=start, limit=count)
    groups = await state.store.scim.groups_of([row.id for row in rows])
    return total, [_user_out(state, row, groups[row.id]) for row in rows]


async def get_user(state: AppState, user_id: str) -> ScimUserOut:
    """Returns a user. Raises ScimFault if there is none."""
    row = await _existing(state, user_id)
    return _user_out(state, row, (await state.store.scim.groups_of([row.id]))[row.id])


async def add_user(state: AppState, who: Principal, sent: UserIn) -> ScimUserOut:
    """Adds a person, or takes over the one who signed in with this id before. Raises ScimFault if there is such a user,
    NotAllowed if another person has the Linux user."""
    oidc, store = provider_settings(state), state.store
    with _unique():
        await store.scim.check_user("", sent.user_name, sent.external_id)
    known = await store.people.by_subject(subject_of(oidc, sent.external_id))
    person = await sync_person(state, known, sent.user_name, sent.external_id, sent, None)
    with _unique():
        made = await store.scim.add_user(person.name, sent.user_name, sent.external_id, _attributes(sent))
    await write_audit_line(state, who, "person.provision", person.name, user=made)
    await _set_active(state, who, person, sent.active, was_active=True)
    return await get_user(state, made)


async def replace_user(state: AppState, who: Principal, user_id: str, body: Mapping[str, Any]) -> ScimUserOut:
    """Replaces the attributes of a user. `active` and `externalId` stay if they are left out. Raises ScimFault."""
    row = await _existing(state, user_id)
    kept = {"externalId": row.external_id, "active": UserAttributes.model_validate(row.attributes).active}
    names = {str(name).lower() for name in body}
    return await _save(state, who, row, {**{k: v for k, v in kept.items() if k.lower() not in names}, **body})


async def patch_user(state: AppState, who: Principal, user_id: str, patch: PatchIn) -> ScimUserOut:
    """Changes attributes of a user. Raises ScimFault."""
    row = await _existing(state, user_id)
    present = {**row.attributes, "userName": row.user_name, "externalId": row.external_id}
    return await _save(state, who, row, patched_user(present, patch.operations))


async def delete_user(state: AppState, who: Principal, user_id: str) -> None:
    """Removes the person of a user, as `delete_person`. Raises ScimFault, and Conflict for the last admin."""
    row = await _existing(state, user_id)
    await delete_person(state, row.person, by=who.person)
    await write_audit_line(state, who, "person.remove", row.person, by=SOURCE)


async def _save(state: AppState, who: Principal, row: ProvisionedUser, body: Mapping[str, Any]) -> ScimUserOut:
    oidc, store = provider_settings(state), state.store
    try:
        sent = UserIn.model_validate(body)
    except ValidationError as error:
        raise ScimFault(
            fault_text(error), hint="correct the provider's mapping of these attributes: docs/howto/scim.md"
        ) from None
    with _unique():
        await store.scim.check_user(row.id, sent.user_name, sent.external_id)
    person = await store.people.get(row.person)
    if person is None:
        raise _none(row.id)
    was_active = UserAttributes.model_validate(row.attributes).active
    if not sent.active:  # first, because a fault in another attribute must not keep a person in
        await _set_active(state, who, person, active=False, was_active=was_active)
    reading = (await store.scim.read_groups([row.id])).get(row.id)
    grouped = reading if reading and reading.groups else None
    person = await sync_person(state, person, sent.user_name, sent.external_id, sent, grouped)
    with _unique():
        subject = subject_of(oidc, sent.external_id)
        await store.scim.change_user(row.id, sent.user_name, sent.external_id, subject, _attributes(sent))
    await write_audit_line(state, who, "person.provision", person.name, user=row.id)
    if sent.active:
        await _set_active(state, who, person, active=True, was_active=was_active)
    return await get_user(state, row.id)


async def _set_active(state: AppState, who: Principal, person: Person, active: bool, *, was_active: bool) -> None:
    """Disables or enables a person. Only a person whom the provider disabled before is enabled: one whom an admin of Headway
    disabled stays so."""
    if not active and not person.disabled:
        await lock_out(state, person.name, by=who.person)
        await write_audit_line(state, who, "person.disable", person.name, by=SOURCE)
    elif active and not was_active and person.disabled:
        await let_in(state, person.name, by=who.person)
        await write_audit_line(state, who, "person.enable", person.name, by=SOURCE)


async def _existing(state: AppState, user_id: str) -> ProvisionedUser:
    _, rows = await state.store.scim.users(UserAsk(id=user_id), limit=1)
    if not rows:
        raise _none(user_id)
    return rows[0]


def _none(user_id: str) -> ScimFault:
    return ScimFault(
        f"there is no user {user_id[:64]}", hint="list users: GET /scim/v2/Users", scim_type="", status=404
    )


@contextmanager
def _unique() -> Iterator[None]:
    """Raises ScimFault for a Conflict."""
    try:
        yield
    except Conflict as error:
        raise ScimFault(
            error.message,
            hint="find it by a filter on userName or externalId, and change it",
            scim_type="uniqueness",
            status=409,
        ) from None


def _attributes(sent: UserIn) -> dict[str, Any]:
    return sent.model_dump(by_alias=True, exclude_none=True, include=set(UserAttributes.model_fields))


def fault_text(error: ValidationError) -> str:
    """Returns what is wrong with a message, without its values."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])


def _user_out(state: AppState, row: ProvisionedUser, groups: tuple[ProvisionedGroup, ...]) -> ScimUserOut:
    sent = UserAttributes.model_validate(row.attributes)
    return ScimUserOut(
        id=row.id,
        user_name=row.user_name,
        external_id=row.external_id,
        active=not row.disabled,
        display_name=sent.display_name,
        name=sent.name,
        emails=sent.emails,
        groups=[resource_reference(state, "Groups", group.id, group.display_name) for group in groups],
        headway=sent.headway or HeadwayUser(),
        meta=meta(state, "User", row.id, row.created_at, row.changed_at),
    )


def resource_reference(state: AppState, kind: str, resource_id: str, display: str) -> Link:
    """Returns a reference to a resource; `kind` is Users or Groups."""
    return Link(value=resource_id, display=display, ref=f"{state.settings.url}{SCIM_PREFIX}/{kind}/{resource_id}")


def meta(state: AppState, kind: str, resource_id: str, created_at: float, changed_at: float) -> Meta:
    """Returns the description of a resource; `kind` is User or Group."""
    return Meta(
        resource_type=kind,
        created=_time(created_at),
        last_modified=_time(changed_at),
        location=f"{state.settings.url}{SCIM_PREFIX}/{kind}s/{resource_id}",
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
