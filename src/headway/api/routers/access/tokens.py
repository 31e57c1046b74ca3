"""Access tokens and sign-in links."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.pagination import ANY, Page, Text, Words, contains, fits
from headway.schemas.access.tokens import SignInLinkOut, TokenIn, TokenOut
from headway.schemas.base import API_PREFIX
from headway.services.access import tokens as service

router = APIRouter(prefix=API_PREFIX, tags=["people"])


@router.get("/tokens")
async def list_tokens(state: State, who: TokenOwner, page: Page, person: Words = ANY, q: Text = "") -> list[TokenOut]:
    """Returns the person's own tokens; for admins the tokens of all people."""
    found = [
        token
        for token in await service.list_tokens(state, who)
        if fits(token.person, person) and contains(q, token.label)
    ]
    return page.cut(found, lambda token: (token.created_at, token.id))


@router.post("/tokens", status_code=201)
async def create_token(body: TokenIn, state: State, who: TokenOwner) -> TokenOut:
    """Creates a token for oneself. Admins can create one for any person; an unknown person is added with `role`."""
    return await service.create_token(state, who, body)


@router.delete("/tokens/{token_id}", status_code=204)
async def delete_token(token_id: str, state: State, who: TokenOwner) -> Response:
    """Revokes the token. Browsers that signed in with it, or with a link made by it, are signed out, and its unused links
    become invalid. Notebooks of its person must be opened again."""
    await service.revoke_token(state, who, token_id)
    return Response(status_code=204)


@router.post("/signin-links", status_code=201)
async def signin_link(state: State, who: TokenOwner, request: Request) -> SignInLinkOut:
    """Returns a link that signs a browser in as this person. It works once, within five minutes."""
    return await service.create_signin_link(state, who, str(request.base_url))
