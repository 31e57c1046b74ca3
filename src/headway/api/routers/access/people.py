"""The people of this server and their roles."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, State
from headway.api.http.pagination import ANY, Page, Text, Words, contains, fits
from headway.schemas.access.people import PersonIn, PersonOut
from headway.schemas.base import API_PREFIX
from headway.services.access import people
from headway.services.access.people import load_person, remove_person, save_person

router = APIRouter(prefix=API_PREFIX, tags=["people"])


@router.get("/people")
async def list_people(state: State, _: Admin, page: Page, role: Words = ANY, q: Text = "") -> list[PersonOut]:
    """Returns all people who may sign in, and the teams in which cluster files list them."""
    found = [row for row in await people.list_people(state) if fits(row.role, role) and contains(q, row.name, row.user)]
    return page.cut(found, lambda row: (row.name,))


@router.get("/people/{person}")
async def get_person(person: str, state: State, _: Admin) -> PersonOut:
    """Returns one person."""
    return await load_person(state, person)


@router.put("/people/{person}")
async def put_person(person: str, body: PersonIn, state: State, who: Admin) -> PersonOut:
    """Adds the person, or changes their role and Linux user. The last admin cannot be demoted."""
    return await save_person(state, who, person, body)


@router.delete("/people/{person}", status_code=204)
async def delete_person(person: str, state: State, who: Admin) -> Response:
    """Removes the person. Their tokens and sessions end at once; on all clusters their jobs are cancelled, their SSH
    sessions ended, and new ones refused within a minute. Their files stay."""
    await remove_person(state, who, person)
    return Response(status_code=204)


@router.post("/people/{person}/disable", name="disable")
async def disable_person(person: str, state: State, who: Admin) -> PersonOut:
    """Disables the person: what they have ends as by a removal, but role and teams are kept. The last admin cannot be
    disabled."""
    return await people.disable_person(state, who, person)


@router.post("/people/{person}/enable", name="enable")
async def enable_person(person: str, state: State, who: Admin) -> PersonOut:
    """Enables a disabled person. Tokens, sessions and jobs that ended do not come back."""
    return await people.enable_person(state, who, person)
