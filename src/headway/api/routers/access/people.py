"""Who am I, the people of this server and their roles, and the server itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from fastapi import APIRouter
from starlette.responses import Response

from headway import __version__
from headway.api.auth.dependencies import Admin, AnyoneAllClusters, State
from headway.api.http.pagination import ANY, Page, Text, Words, fits, says
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotFound, Refused
from headway.schemas.people import MeOut, PersonIn, PersonOut, ServerOut
from headway.services.authorization import write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal, Right, linux_user_of
from headway.store import Person
from headway.validation.syntax_rules import user_name_fault

router = APIRouter(tags=["people"])


@router.get("/me")
async def me(who: AnyoneAllClusters) -> MeOut:
    return MeOut(person=who.person, role=who.role, version=__version__)


@router.get("/server")
async def server(state: State, who: AnyoneAllClusters) -> ServerOut:
    """Where it lies on its machine is for admins."""
    clusters = [row for row in await state.store.clusters() if who.may_see_cluster(row.name)]
    told = ServerOut(
        url=state.settings.url,
        version=__version__,
        pid=0,
        state_dir="",
        database="",
        clusters=len(clusters),
        leads=state.store.presence.leads,
    )
    if not who.may(Right.ADMIN):
        return told
    settings = state.settings
    place = {"pid": os.getpid(), "state_dir": str(settings.state_dir), "database": settings.database}
    return told.model_copy(update=place)


@router.get("/people")
async def people(state: State, _: Admin, page: Page, role: Words = ANY, q: Text = "") -> list[PersonOut]:
    """Everybody who may sign in, and the teams that clusters' files have them in."""
    found = [one for one in await everybody(state) if fits(one.role, role) and says(q, one.name, one.user)]
    return page.cut(found, lambda one: (one.name,))


async def everybody(state: AppState) -> list[PersonOut]:
    clusters = await resolved_clusters(state)
    return [person_out(one, clusters) for one in await state.store.people()]


@router.get("/people/{person}")
async def person(person: str, state: State, _: Admin) -> PersonOut:
    return person_out(await _known(state, person), await resolved_clusters(state))


@router.put("/people/{person}")
async def put_person(person: str, ask: PersonIn, state: State, who: Admin) -> PersonOut:
    """Makes the person, or gives them this role and Linux user. The last admin stays one."""
    return person_out(await changed(state, who, person, ask), await resolved_clusters(state))


async def changed(state: AppState, who: Principal, person: str, ask: PersonIn) -> Person:
    """The person, made or changed by an admin, with the line of the audit trail."""
    known = await state.store.person(person)
    if known is None:
        fault = user_name_fault(person)
        if fault:
            raise Refused(f"the name {person!r} {fault}", hint="use the person's Linux user name")
    if ask.user:
        fault = user_name_fault(ask.user)
        if fault:
            raise Refused(f"the user name {ask.user!r} {fault}", hint="use the person's name on the machines")
    user = ask.user if known is None or ask.user is not None else known.user
    beside = own_user(person, person if user is None else user)
    now = await state.store.change_person(person, role=ask.role, user=user, beside=beside, made=known is None)
    state.notebooks.sign_out(person)  # they may open them again, as who they are now
    await write_audit_line(state, who, "person.change" if known else "person.add", person, role=ask.role, user=user)
    return now


@router.delete("/people/{person}", status_code=204)
async def delete_person(person: str, state: State, who: Admin) -> Response:
    """Their tokens and sessions end at once. What they run on clusters goes on: a cluster's file says who works there."""
    await _known(state, person)
    await state.store.delete_person(person)
    state.notebooks.sign_out(person)
    await write_audit_line(state, who, "person.remove", person)
    return Response(status_code=204)


async def _known(state: AppState, name: str) -> Person:
    found = await state.store.person(name)
    if found is None:
        raise NotFound(f"no person {name!r}", hint="headway people")
    return found


def own_user(person: str, user: str) -> Callable[[Sequence[Person]], None]:
    """What raises Refused when, of all people, somebody else acts as this Linux user: `root` and `Ann.Lee` have other names
    there."""

    def look(people: Sequence[Person]) -> None:
        for other in people:
            if user and other.name != person and linux_user_of(other) == user:
                raise Refused(f"{other.name} is the user {user} on clusters already", hint="use another name")

    return look


async def resolved_clusters(state: AppState) -> list[Cluster]:
    """Those whose document can still be read."""
    found = []
    for row in await state.store.clusters():
        try:
            found.append(await state.resolved(row))
        except HeadwayError:
            continue
    return found


def person_out(one: Person, clusters: Iterable[Cluster]) -> PersonOut:
    user = linux_user_of(one)
    teams = {c.name: [t.name for t in c.teams if user and user in t.users] for c in clusters}
    leads = {c.name: [t.name for t in c.teams if user and user in t.leads] for c in clusters}
    return PersonOut(
        name=one.name,
        role=one.role,
        user=user,
        provider=bool(one.subject),
        created_at=one.created_at,
        teams={cluster: names for cluster, names in teams.items() if names},
        leads={cluster: names for cluster, names in leads.items() if names},
    )
