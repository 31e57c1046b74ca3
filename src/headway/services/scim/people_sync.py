"""Gives people what the users and groups of the provider say: name, role, teams and Linux user."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headway.domain.access.role import Role
from headway.errors import Conflict, NotAllowed, Refused
from headway.schemas.access.scim import UserAttributes
from headway.services.access.oidc_claims import role_from_claims
from headway.services.access.provider_people import update_from_provider
from headway.services.app_state import AppState
from headway.services.server_settings import Oidc
from headway.store import GroupsReading, Person, ProvisionedGroup, ProvisionedUser
from headway.store.access.scim import GroupsChanged

SOURCE = "SCIM"  # in the audit trail
_MOST_TRIES = 10  # then a later call does it, because the user stays due
_MOST_DUE = 100


def provider_settings(state: AppState) -> Oidc:
    """Returns the settings of the sign-in provider, which say what groups mean. Raises Refused without one."""
    if state.settings.oidc is None:
        raise Refused("SCIM needs a sign-in provider", hint="set HEADWAY_OIDC_ISSUER: docs/howto/scim.md")
    return state.settings.oidc


async def sync_person(
    state: AppState,
    known: Person | None,
    user_name: str,
    external_id: str,
    attributes: UserAttributes,
    reading: GroupsReading | None,
) -> Person:
    """Returns the person of a user, changed to what the provider says; None is a new one. `reading`: None if the provider
    does not send their groups; then role and teams stay until a sign-in sets them. A person whose groups give no role is a
    viewer who can't sign in; their tokens and sessions end. Raises NotAllowed if another person has the Linux user, Conflict
    for the last admin, GroupsChanged if the groups have changed since the reading."""
    oidc = provider_settings(state)
    claims = user_claims(oidc, user_name, external_id, attributes)
    if known is not None and oidc.user_claim not in claims:
        claims[oidc.user_claim] = known.user
    role: Role | None = None
    if reading is not None:
        claims |= group_claims(oidc, reading.groups)
        try:
            role = role_from_claims(oidc, claims)
        except NotAllowed:
            role = Role.VIEWER
            if known is not None and known.role is not Role.VIEWER:
                await state.store.people.end_sign_ins(known.name)
                state.notebooks.end_sessions_of(known.name)
    return await update_from_provider(
        state, known, oidc, claims, role, SOURCE, with_teams=reading is not None, reading=reading
    )


async def sync_members(state: AppState, users: Collection[str]) -> None:
    """Gives the people of the users with these ids, who are or were in groups, what their groups say now. What can't be done
    for one of them (the last admin) is in the audit trail, and does not keep the others from it."""
    for row in (await state.store.scim.people_of(users)).values():
        for _ in range(_MOST_TRIES):
            try:
                await _sync_member(state, row)
            except GroupsChanged:  # by another request, also of another server: what it read may be older than this
                continue
            break


async def sync_unfinished(state: AppState) -> None:
    """Gives people what their groups say whose groups a server has changed that then ended."""
    if state.settings.oidc is not None and (due := await state.store.scim.rights_due(_MOST_DUE)):
        await sync_members(state, due)


async def _sync_member(state: AppState, row: ProvisionedUser) -> None:
    """Gives one person what their groups say. Raises GroupsChanged if these change meanwhile."""
    store = state.store
    reading = (await store.scim.read_groups([row.id])).get(row.id)
    person = await store.people.get(row.person)
    if reading is None or person is None:  # removed meanwhile
        return
    attributes = UserAttributes.model_validate(row.attributes)
    try:
        await sync_person(state, person, row.user_name, row.external_id, attributes, reading)
    except GroupsChanged:
        raise
    except (Conflict, NotAllowed) as error:
        detail = {"by": SOURCE, "why": error.message}
        await store.audit.record(row.person, "person.change", row.person, detail, result="failed")
    await store.scim.finish_rights(reading)


async def sign_in_claims(
    state: AppState, person: Person, claims: Mapping[str, Any]
) -> tuple[Mapping[str, Any], GroupsReading] | None:
    """Returns the claims of a sign-in with what SCIM says about the person, and the groups that this was read from: the groups
    of SCIM, if they are in one, replace those of the claims. None for a person whom the provider does not send by SCIM."""
    user = await state.store.scim.user_of(person.name)
    if user is None or state.settings.oidc is None:
        return None
    oidc = state.settings.oidc
    sent = user_claims(oidc, user.user_name, user.external_id, UserAttributes.model_validate(user.attributes))
    found: dict[str, Any] = {**sent, **claims}
    reading = (await state.store.scim.read_groups([user.id])).get(user.id)
    if reading is None:
        return None
    return found | group_claims(oidc, reading.groups) if reading.groups else found, reading


def user_claims(oidc: Oidc, user_name: str, external_id: str, attributes: UserAttributes) -> dict[str, Any]:
    """Returns what a user's attributes are as claims of OpenID Connect."""
    emails = attributes.emails or []
    mail = next((email.value for email in emails if email.primary), emails[0].value if emails else None)
    claims: dict[str, Any] = {oidc.subject_claim: external_id, "preferred_username": user_name}
    claims |= {"email": mail} if mail else {}
    if attributes.headway is not None and attributes.headway.linux_user and oidc.user_claim:
        claims[oidc.user_claim] = attributes.headway.linux_user
    return claims


def group_claims(oidc: Oidc, groups: Iterable[ProvisionedGroup]) -> dict[str, Any]:
    """Returns groups as the claims that the settings name. A provider may write a group's name or its own id into them."""
    words = [word for group in groups for word in (group.display_name, group.external_id) if word]
    return {claim: words for claim in (oidc.role_claim, oidc.team_claim) if claim}
