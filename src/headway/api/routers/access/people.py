"""The signed-in person, the people of this server and their roles, and the server itself."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from headway import __version__
from headway.api.auth.dependencies import Admin, AnyoneAllClusters, State
from headway.api.http.pagination import ANY, Page, Text, Words, fits, says
from headway.schemas.people import MeOut, PersonIn, PersonOut
from headway.schemas.server import ServerOut
from headway.services.access.people import describe_server, list_people, load_person, remove_person, save_person

router = APIRouter(tags=["people"])


@router.get("/me")
async def me(who: AnyoneAllClusters) -> MeOut:
    """Returns the person of the token or session."""
    return MeOut(person=who.person, role=who.role, version=__version__)


@router.get("/server")
async def server(state: State, who: AnyoneAllClusters) -> ServerOut:
    """Returns the server's address and version. Only admins also get its process, folder and database."""
    return await describe_server(state, who)


@router.get("/people")
async def people(state: State, _: Admin, page: Page, role: Words = ANY, q: Text = "") -> list[PersonOut]:
    """Returns all people who may sign in, and the teams in which cluster files list them."""
    found = [one for one in await list_people(state) if fits(one.role, role) and says(q, one.name, one.user)]
    return page.cut(found, lambda one: (one.name,))


@router.get("/people/{person}")
async def person(person: str, state: State, _: Admin) -> PersonOut:
    """Returns one person."""
    return await load_person(state, person)


@router.put("/people/{person}")
async def put_person(person: str, ask: PersonIn, state: State, who: Admin) -> PersonOut:
    """Adds the person, or changes their role and Linux user. The last admin cannot be demoted."""
    return await save_person(state, who, person, ask)


@router.delete("/people/{person}", status_code=204)
async def delete_person(person: str, state: State, who: Admin) -> Response:
    """Removes the person. Their tokens and sessions end at once. Their jobs continue, because the cluster's file says
    who may work there."""
    await remove_person(state, who, person)
    return Response(status_code=204)
