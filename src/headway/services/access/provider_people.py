"""Adds and changes people as the identity provider describes them, by claims (OpenID Connect) or by groups (SCIM)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.domain.access.role import Role
from headway.errors import Conflict, NotAllowed, Refused
from headway.services.access.oidc_claims import (
    Claims,
    linux_user_from_claims,
    name_from_claims,
    subject_of,
    teams_from_claims,
)
from headway.services.access.people import require_unused_user
from headway.services.app_state import AppState
from headway.services.server_settings import Oidc
from headway.store import GroupsReading, Person


async def update_from_provider(
    state: AppState,
    known: Person | None,
    oidc: Oidc,
    claims: Claims,
    role: Role | None,
    by: str,
    *,
    with_teams: bool = True,
    reading: GroupsReading | None = None,
) -> Person:
    """Returns the person of these claims, with the role and the teams and Linux user that the claims give. A person who is
    not known yet is added. `role`: None is the role they have, or viewer; `by` is the source, for the audit trail; without
    `with_teams` the teams stay. `reading`: the groups of SCIM among the claims. Raises NotAllowed if another person has the
    Linux user, Conflict for the last admin, GroupsChanged if the groups have changed since the reading."""
    user = linux_user_from_claims(oidc, claims)
    if known is None:
        known = await _add(
            state, name_from_claims(claims), subject_of(oidc, str(claims[oidc.subject_claim])), role, user, by
        )
    wanted = (role or known.role, known.user if user is None else user)
    if wanted != (known.role, known.user):
        check = _free(known.name, wanted[1])
        known = await state.store.people.change(
            known.name, role=wanted[0], user=wanted[1], check=check, reading=reading
        )
        await state.store.audit.record(known.name, "person.change", known.name, {"by": by, "role": known.role})
    teams = teams_from_claims(oidc, claims)
    if with_teams and teams != known.provider_teams:
        await state.store.people.set_provider_teams(known.name, teams, reading=reading)
        await state.store.audit.record(known.name, "person.teams", known.name, {"by": by, "teams": list(teams)})
        known = replace(known, provider_teams=teams)
    return known


async def _add(state: AppState, name: str, subject: str, role: Role | None, user: str | None, by: str) -> Person:
    """Adds a person. If another person has the name, it gets a hash of the subject."""
    longer = f"{name[:50]}-{hashlib.sha256(subject.encode()).hexdigest()[:8]}"
    for tried in (name, longer):
        try:
            made = await state.store.people.add_from_provider(
                tried, subject, role=role or Role.VIEWER, user=user or "", check=_free(tried, user)
            )
        except Conflict:
            if tried == longer:
                raise
            continue
        break
    await state.store.audit.record(made.name, "person.add", made.name, {"by": by, "role": made.role})
    return made


def _free(name: str, user: str | None) -> Callable[[Sequence[Person]], None]:
    """Returns a check that raises NotAllowed if another person already has this Linux user: two people must not act as
    one."""

    def check(people: Sequence[Person]) -> None:
        try:
            require_unused_user(name, user or "")(people)
        except Refused as error:
            raise NotAllowed(error.message, hint="ask an admin to merge the two people") from None

    return check
