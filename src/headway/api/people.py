"""Who am I, tokens, browser sign-in, and the server itself."""

from __future__ import annotations

import contextlib
import os
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from headway import __version__
from headway.api.access import Anyone, Principal, State, audit, signed_in, state_of
from headway.api.state import AppState
from headway.errors import NotAllowed, NotFound, NotSignedIn, Refused
from headway.spec.words import user_name_fault, user_name_from
from headway.store import Token
from headway.wire.schemas import MeOut, ServerOut, SignInLinkOut, TokenIn, TokenOut

router = APIRouter(tags=["people"])
pages = APIRouter(include_in_schema=False)


@router.get("/me")
async def me(who: Anyone) -> MeOut:
    return MeOut(person=who.person, role=who.role, version=__version__)


@router.get("/server")
async def server(state: State, _: Anyone) -> ServerOut:
    clusters = await state.store.clusters()
    return ServerOut(
        url=state.settings.url,
        version=__version__,
        pid=os.getpid(),
        state_dir=str(state.settings.state_dir),
        database=state.settings.database,
        clusters=len(clusters),
    )


@router.get("/tokens")
async def tokens(state: State, who: Anyone) -> list[TokenOut]:
    """One's own; for admins everybody's."""
    rows = await state.store.tokens(None if who.has("admin") else who.person)
    return [_token_out(row) for row in rows]


@router.post("/tokens", status_code=201)
async def create_token(ask: TokenIn, state: State, who: Anyone) -> TokenOut:
    """A token for oneself, or by an admin for anybody (who is made, with `role`, if there is no such person)."""
    person = ask.person or who.person
    if (person != who.person or ask.role is not None) and not who.has("admin"):
        raise NotAllowed(f"{who.person} may only make tokens for themself, without a role", hint="ask an admin")
    if ask.days is not None and ask.days < 1:
        raise Refused("a token lasts at least one day")
    known = await state.store.person(person)
    if known is None:
        fault = user_name_fault(person)
        if fault:
            raise Refused(f"the name {person!r} {fault}", hint="use the person's Linux user name")
        await _need_own_user(state, person)
    if known is None or (ask.role is not None and ask.role != known.role):
        if person == who.person and ask.role not in (None, "admin"):
            raise Refused("an admin can't take their own role away", hint="let another admin do it")
        await state.store.put_person(person, ask.role or "member")
    row, secret = await state.store.create_token(person, label=ask.label[:200], days=ask.days)
    await audit(state, who, "token.create", person, id=row.id, role=row.role)
    return _token_out(row, secret)


async def _need_own_user(state: AppState, person: str) -> None:
    """Raises Refused when somebody else acts as this Linux user already: `root` and `Ann.Lee` have other names there."""
    for other in await state.store.people():
        if user_name_from(other.name) == person:
            raise Refused(f"{other.name} is the user {person} on clusters already", hint="use another name")


@router.delete("/tokens/{token_id}", status_code=204)
async def delete_token(token_id: str, state: State, who: Anyone) -> Response:
    """Takes the token back. Its person's browsers are signed out too, and sign-in links not used yet end."""
    rows = await state.store.tokens(None if who.has("admin") else who.person)
    if token_id not in {row.id for row in rows}:
        raise NotFound(f"no token {token_id!r}", hint="headway token ls")
    await state.store.delete_token(token_id)
    await audit(state, who, "token.delete", token_id)
    return Response(status_code=204)


@router.post("/signin-links", status_code=201)
async def signin_link(state: State, who: Anyone, request: Request) -> SignInLinkOut:
    """A link that signs a browser in as this person, once, within five minutes."""
    code, expires = await state.store.create_signin_code(who.person)
    await audit(state, who, "signin.link", who.person)
    base = state.settings.url or str(request.base_url).rstrip("/")
    return SignInLinkOut(url=f"{base}/signin?code={quote(code)}", expires_at=expires)


@pages.get("/signin")
async def signin(request: Request, code: str = "") -> Response:
    state = state_of(request)
    spent = await state.store.spend_signin_code(code) if code else None
    if spent is None:
        raise NotSignedIn(
            "this sign-in link was used already or is too old", hint="headway server status has a new one"
        )
    person, cookie, expires = spent
    await audit(state, Principal(person.name, person.role), "signin", person.name)
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        state.settings.cookie,
        cookie,
        max_age=int(expires - state.clock()),
        httponly=True,
        samesite="strict",
        secure=state.settings.url.startswith("https://"),
        path="/",
    )
    return answer


@pages.post("/signout")
async def signout(request: Request) -> Response:
    """The page's button. Only from our own pages, as every write with a cookie; a session that has ended is fine."""
    state = state_of(request)
    answer = RedirectResponse("/", status_code=303)
    with contextlib.suppress(NotSignedIn):
        who = await signed_in(request)
        await state.store.end_session(request.cookies.get(state.settings.cookie, ""))
        await audit(state, who, "signout", who.person)
    answer.delete_cookie(state.settings.cookie, path="/")
    return answer


def _token_out(row: Token, secret: str | None = None) -> TokenOut:
    return TokenOut(
        id=row.id,
        person=row.person,
        role=row.role,
        label=row.label,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        token=secret,
    )
