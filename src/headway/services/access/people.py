"""The people who may sign in to this server: their roles, and their Linux users on the clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from headway import __version__
from headway.domain.access.role import Role
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotFound, Refused
from headway.schemas.access.people import PersonIn, PersonOut
from headway.schemas.server import ServerOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import ROLE_RIGHTS, Principal, Right
from headway.services.app_state import AppState
from headway.services.mlflow.journals import describe_mlflow
from headway.store import DueUserChange, Person
from headway.validation.syntax_rules import user_name_fault, user_name_from


async def describe_server(state: AppState, who: Principal) -> ServerOut:
    """Returns the server's address and version. Only admins also get its process, folder and database."""
    clusters = [row for row in await state.store.clusters.all() if who.may_see_cluster(row.name)]
    admin = who.may(Right.ADMIN)
    return ServerOut(
        url=state.settings.url,
        version=__version__,
        pid=os.getpid() if admin else 0,
        state_dir=str(state.settings.state_dir) if admin else "",
        database=state.settings.database if admin else "",
        clusters=len(clusters),
        leads=state.store.server_locks.leads,
        fingerprint=state.settings.fingerprint,
        mlflow=await describe_mlflow(state) if admin else None,
    )


async def list_people(state: AppState) -> list[PersonOut]:
    """Returns all people, with the teams in which each cluster's file lists them."""
    clusters, due = await _readable_clusters(state), await state.store.user_changes.due()
    return [_person_out(state, person, clusters, due) for person in await state.store.people.all()]


async def load_person(state: AppState, name: str) -> PersonOut:
    """Returns one person. Raises NotFound."""
    return await _person_with_teams(state, await _existing_person(state, name))


async def save_person(state: AppState, who: Principal, name: str, request: PersonIn) -> PersonOut:
    """Stores the person as `store_person`, and returns them in the form of the API."""
    return await _person_with_teams(state, await store_person(state, who, name, request))


async def store_person(state: AppState, who: Principal, name: str, request: PersonIn) -> Person:
    """Adds a person, or changes their role and Linux user, and writes the audit entry. Their notebook sessions end.

    Raises SignInAgain if this gives rights; Refused for a name that is not a valid user name, for a Linux user that another
    person has, and for the demotion of the last admin."""
    known = await state.store.people.get(name)
    if known is None and (fault := user_name_fault(name)):
        raise Refused(f"the name {name!r} {fault}", hint="use the person's Linux user name")
    if request.user and (fault := user_name_fault(request.user)):
        raise Refused(f"the user name {request.user!r} {fault}", hint="use the person's name on the machines")
    user = request.user if known is None or request.user is not None else known.user
    if _gives_rights(known, request.role, user):
        who.require_recent_sign_in(state.clock(), f"give rights to {name}")
    check = require_unused_user(name, user_name_from(name) if user is None else user)
    person = await state.store.people.change(
        name, role=request.role, user=user, check=check, made=known is None, by=who.person
    )
    state.notebooks.end_sessions_of(name)  # they can open them again, with their new rights
    await write_audit_line(state, who, "person.change" if known else "person.add", name, role=request.role, user=user)
    return person


def _gives_rights(known: Person | None, role: Role, user: str | None) -> bool:
    """Returns whether a person of this role and Linux user may do something that the known person may not."""
    if known is None or not ROLE_RIGHTS[role] <= ROLE_RIGHTS[known.role]:
        return True
    return bool(user) and user != known.linux_user


async def remove_person(state: AppState, who: Principal, name: str) -> None:
    """Removes a person. Their tokens and sessions end at once, and what they run on clusters within a minute
    (server.workers.user_changes). Raises NotFound and SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"remove {name}")
    await delete_person(state, name, by=who.person)
    await write_audit_line(state, who, "person.remove", name)


async def delete_person(state: AppState, name: str, *, by: str) -> None:
    """Deletes a person with their tokens, sessions and secrets of jobs, and locks their Linux user. `by` is who does it. Raises
    NotFound, and Conflict for the last admin, because no other person could add people."""
    await state.store.people.delete(name, by=by)
    state.notebooks.end_sessions_of(name)


async def disable_person(state: AppState, who: Principal, name: str) -> PersonOut:
    """Disables a person, as `lock_out`. Raises NotFound, SignInAgain, and Conflict for the last admin."""
    who.require_recent_sign_in(state.clock(), f"disable {name}")
    person = await lock_out(state, name, by=who.person)
    await write_audit_line(state, who, "person.disable", name)
    return await _person_with_teams(state, person)


async def lock_out(state: AppState, name: str, *, by: str) -> Person:
    """Disables a person: their tokens and sessions end at once, and what they run on clusters within a minute
    (server.workers.user_changes). Their files stay. `by` is who does it. Raises NotFound, and Conflict for the last
    admin."""
    person = await state.store.people.disable(name, by=by)
    state.notebooks.end_sessions_of(name)
    return person


async def enable_person(state: AppState, who: Principal, name: str) -> PersonOut:
    """Lets a disabled person sign in and work on clusters again. Raises NotFound and SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"enable {name}")
    person = await let_in(state, name, by=who.person)
    await write_audit_line(state, who, "person.enable", name)
    return await _person_with_teams(state, person)


async def let_in(state: AppState, name: str, *, by: str) -> Person:
    """Enables a disabled person. `by` is who does it. Raises NotFound."""
    return await state.store.people.enable(name, by=by)


async def _existing_person(state: AppState, name: str) -> Person:
    found = await state.store.people.get(name)
    if found is None:
        raise NotFound(f"no person {name!r}", hint="headway people")
    return found


def require_unused_user(person: str, user: str) -> Callable[[Sequence[Person]], None]:
    """Returns a check of all people that raises Refused if another person has this Linux user. Comparing names is not
    enough: the people `root` and `Ann.Lee` have Linux users of other names."""

    def check(people: Sequence[Person]) -> None:
        for other in people:
            if user and other.name != person and other.linux_user == user:
                raise Refused(f"{other.name} is the user {user} on clusters already", hint="use another name")

    return check


async def _readable_clusters(state: AppState) -> list[Cluster]:
    """Returns the clusters whose documents this version can read."""
    found = []
    for row in await state.store.clusters.all():
        try:
            found.append(await state.clusters.resolved(row))
        except HeadwayError:
            continue
    return found


async def _person_with_teams(state: AppState, person: Person) -> PersonOut:
    return _person_out(state, person, await _readable_clusters(state), await state.store.user_changes.due())


def _person_out(
    state: AppState, person: Person, clusters: Iterable[Cluster], due: Iterable[DueUserChange]
) -> PersonOut:
    user = person.linux_user
    teams = {c.name: [t.name for t in c.teams if user and user in t.users] for c in clusters}
    leads = {c.name: [t.name for t in c.teams if user and user in t.leads] for c in clusters}
    return PersonOut(
        name=person.name,
        role=person.role,
        user=user,
        provider=bool(person.subject),
        provider_role=bool(person.subject and state.settings.oidc and state.settings.oidc.role_claim),
        provider_teams=list(person.provider_teams),
        created_at=person.created_at,
        disabled=person.disabled,
        changes_due={
            row.cluster: row.error or "not done yet" for row in due if row.user == user and row.done_at is None
        },
        teams={cluster: names for cluster, names in teams.items() if names},
        leads={cluster: names for cluster, names in leads.items() if names},
    )
