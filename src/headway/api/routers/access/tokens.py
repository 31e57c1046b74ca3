"""Access tokens and sign-in links."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.pagination import ANY, Page, Text, Words, fits, says
from headway.api.routers.access.people import changed
from headway.errors import NotAllowed, NotFound, Refused
from headway.schemas.people import PersonIn, SignInLinkOut, TokenIn, TokenOut
from headway.services.authorization import write_audit_line
from headway.services.context import AppState
from headway.services.identity import Principal, Right
from headway.store import Token

router = APIRouter(tags=["people"])


@router.get("/tokens")
async def tokens(state: State, who: TokenOwner, page: Page, person: Words = ANY, q: Text = "") -> list[TokenOut]:
    """One's own; for admins everybody's."""
    found = [one for one in await tokens_of(state, who) if fits(one.person, person) and says(q, one.label)]
    return page.cut(found, lambda one: (one.created_at, one.id))


async def tokens_of(state: AppState, who: Principal) -> list[TokenOut]:
    """Those that this person may see."""
    rows = await state.store.tokens(None if who.may(Right.ADMIN) else who.person)
    return [token_out(row) for row in rows]


@router.post("/tokens", status_code=201)
async def create_token(ask: TokenIn, state: State, who: TokenOwner) -> TokenOut:
    """A token for oneself, or by an admin for anybody (who is made, with `role`, if there is no such person)."""
    person = ask.person or who.person
    if (person != who.person or ask.role is not None) and not who.may(Right.ADMIN):
        raise NotAllowed(f"{who.person} may only make tokens for themself, without a role", hint="ask an admin")
    if ask.cluster:
        await state.row(ask.cluster)
    await _need_person(state, who, person, ask)
    row, secret = await state.store.create_token(
        person, label=ask.label, days=ask.days, scopes=tuple(dict.fromkeys(ask.scopes)), cluster=ask.cluster
    )
    told = {"scopes": list(row.scopes), "cluster": row.cluster, "expires_at": row.expires_at}
    await write_audit_line(state, who, "token.create", person, id=row.id, role=row.role, label=row.label, **told)
    return token_out(row, secret)


async def _need_person(state: AppState, who: Principal, person: str, ask: TokenIn) -> None:
    known = await state.store.person(person)
    if known is None or (ask.role is not None and ask.role != known.role):
        if person == who.person and ask.role not in (None, "admin"):
            raise Refused("an admin can't take their own role away", hint="let another admin do it")
        await changed(state, who, person, PersonIn(role=ask.role or "member"))


@router.delete("/tokens/{token_id}", status_code=204)
async def delete_token(token_id: str, state: State, who: TokenOwner) -> Response:
    """Takes the token back. Its person's browsers are signed out too, and sign-in links not used yet end."""
    rows = await state.store.tokens(None if who.may(Right.ADMIN) else who.person)
    mine = next((row for row in rows if row.id == token_id), None)
    if mine is None:
        raise NotFound(f"no token {token_id!r}", hint="headway token ls")
    await state.store.delete_token(token_id)
    state.notebooks.sign_out(mine.person)
    await write_audit_line(state, who, "token.delete", mine.person, id=token_id, label=mine.label)
    return Response(status_code=204)


@router.post("/signin-links", status_code=201)
async def signin_link(state: State, who: TokenOwner, request: Request) -> SignInLinkOut:
    """A link that signs a browser in as this person, once, within five minutes."""
    code, expires = await state.store.create_signin_code(who.person)
    await write_audit_line(state, who, "signin.link", who.person)
    base = state.settings.url or str(request.base_url).rstrip("/")
    return SignInLinkOut(url=f"{base}/signin?code={quote(code)}", expires_at=expires)


def token_out(row: Token, secret: str | None = None) -> TokenOut:
    return TokenOut(
        id=row.id,
        person=row.person,
        role=row.role,
        label=row.label,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        scopes=list(row.scopes),
        cluster=row.cluster,
        token=secret,
    )
