"""The people who may sign in to this server: their roles, and their Linux users on the clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from headway import __version__
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotFound, Refused
from headway.schemas.access.people import PersonIn, PersonOut
from headway.schemas.server import ServerOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal, Right, linux_user_of
from headway.services.app_state import AppState
from headway.store import Person
from headway.validation.syntax_rules import user_name_fault


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
    )


async def list_people(state: AppState) -> list[PersonOut]:
    """Returns all people, with the teams in which each cluster's file lists them."""
    clusters = await _readable_clusters(state)
    return [_person_out(state, person, clusters) for person in await state.store.people.all()]


async def load_person(state: AppState, name: str) -> PersonOut:
    """Returns one person. Raises NotFound."""
    return _person_out(state, await _existing_person(state, name), await _readable_clusters(state))


async def save_person(state: AppState, who: Principal, name: str, request: PersonIn) -> PersonOut:
    """Stores the person as `store_person`, and returns them in the form of the API."""
    return _person_out(state, await store_person(state, who, name, request), await _readable_clusters(state))


async def store_person(state: AppState, who: Principal, name: str, request: PersonIn) -> Person:
    """Adds a person, or changes their role and Linux user, and writes the audit entry. Their notebook sessions end.

    Raises Refused for a name that is not a valid user name, for a Linux user that another person has, and for the
    demotion of the last admin."""
    known = await state.store.people.get(name)
    if known is None and (fault := user_name_fault(name)):
        raise Refused(f"the name {name!r} {fault}", hint="use the person's Linux user name")
    if request.user and (fault := user_name_fault(request.user)):
        raise Refused(f"the user name {request.user!r} {fault}", hint="use the person's name on the machines")
    user = request.user if known is None or request.user is not None else known.user
    check = require_unused_user(name, name if user is None else user)
    person = await state.store.people.change(name, role=request.role, user=user, check=check, made=known is None)
    state.notebooks.end_sessions_of(name)  # they can open them again, with their new rights
    await write_audit_line(state, who, "person.change" if known else "person.add", name, role=request.role, user=user)
    return person


async def remove_person(state: AppState, who: Principal, name: str) -> None:
    """Removes a person. Their tokens and sessions end at once. Their jobs continue, because the cluster's file says who
    may work there. Raises NotFound and SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"remove {name}")
    await _existing_person(state, name)
    await delete_person(state, name)
    await write_audit_line(state, who, "person.remove", name)


async def delete_person(state: AppState, name: str) -> None:
    """Deletes a person with their tokens and sessions. Raises Conflict for the last admin, because no other person could
    add people."""
    person = await _existing_person(state, name)
    await state.store.people.delete(name)
    if user := linux_user_of(person):
        await state.store.job_secrets.remove_user(user)
    state.notebooks.end_sessions_of(name)


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
            if user and other.name != person and linux_user_of(other) == user:
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


def _person_out(state: AppState, person: Person, clusters: Iterable[Cluster]) -> PersonOut:
    user = linux_user_of(person)
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
        teams={cluster: names for cluster, names in teams.items() if names},
        leads={cluster: names for cluster, names in leads.items() if names},
    )
