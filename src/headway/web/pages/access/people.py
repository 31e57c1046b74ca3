"""The people who may sign in, and their roles."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, State
from headway.api.http.failure_audit import audit_failure
from headway.domain.access.role import Role
from headway.errors import HeadwayError, NotAllowed
from headway.schemas.access.people import PersonIn
from headway.services.access import people
from headway.services.access.people import list_people, save_person
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
ENDED = "their tokens and sessions have ended, their jobs and SSH sessions end within a minute"


@router.get("/people")
async def people_page(state: State, who: Admin) -> Response:
    """Returns the page of people."""
    found = await list_people(state)
    return render("people.html", viewer=who, here="people", people=found, roles=Role, oidc=state.settings.oidc)


@router.post("/people")
async def add_person(
    request: Request,
    state: State,
    who: Admin,
    person: Annotated[str, Form(max_length=64)] = "",
    role: Annotated[Role, Form()] = Role.MEMBER,
) -> Response:
    """Adds a person."""
    name = person.strip()
    if await state.store.people.get(name) is not None:
        return redirect_with_message("/people", f"{name} exists already", is_error=True)
    return await _save(
        request, state, who, name, PersonIn(role=role), f"{name} is added as {role}; give this person a token or a link"
    )


@router.post("/people/{person}")
async def change_person(
    person: str,
    request: Request,
    state: State,
    who: Admin,
    role: Annotated[Role, Form()],
    user: Annotated[str, Form(max_length=32)] = "",
) -> Response:
    """Changes a person's role and Linux user."""
    return await _save(request, state, who, person, PersonIn(role=role, user=user.strip()), f"{person} is {role} now")


@router.post("/people/{person}/remove")
async def remove_person(person: str, request: Request, state: State, who: Admin) -> Response:
    """Removes a person."""
    return await _do(request, people.remove_person(state, who, person), f"{person} is removed: {ENDED}")


@router.post("/people/{person}/disable")
async def disable_person(person: str, request: Request, state: State, who: Admin) -> Response:
    """Disables a person."""
    return await _do(request, people.disable_person(state, who, person), f"{person} is disabled: {ENDED}")


@router.post("/people/{person}/enable")
async def enable_person(person: str, request: Request, state: State, who: Admin) -> Response:
    """Enables a disabled person."""
    return await _do(
        request, people.enable_person(state, who, person), f"{person} is enabled; give this person a new token or link"
    )


async def _save(request: Request, state: State, who: Admin, person: str, body: PersonIn, done: str) -> Response:
    return await _do(request, save_person(state, who, person, body), done)


async def _do(request: Request, change: Awaitable[object], done: str) -> Response:
    try:
        await change
    except NotAllowed:
        raise
    except HeadwayError as error:
        await audit_failure(request, error)
        return redirect_with_message("/people", error.message, is_error=True)
    return redirect_with_message("/people", done)
