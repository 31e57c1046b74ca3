"""One's own tokens (for admins everybody's): make, look at, take back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.failure_audit import audit_failure
from headway.api.routers.access import tokens
from headway.errors import HeadwayError
from headway.schemas.people import TokenIn, TokenOut
from headway.services.identity import TOKEN_SCOPES, Right
from headway.web.page_context import see_other
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
WORDS = {
    "all": "everything you may do",
    "read": "looking at clusters, nodes and the queue",
    "jobs": "looking, and submitting, cancelling and reading jobs",
    "nodes": "looking, and acting on nodes and incidents",
}
LIVES = ((7, "a week"), (30, "30 days"), (90, "90 days"), (365, "a year"))
assert WORDS.keys() == TOKEN_SCOPES.keys()


@router.get("/tokens")
async def page(state: State, who: TokenOwner) -> Response:
    return await _page(state, who)


@router.post("/tokens")
async def create(
    request: Request,
    state: State,
    who: TokenOwner,
    label: Annotated[str, Form(max_length=200)] = "",
    days: Annotated[int, Form(ge=1, le=36_500)] = 30,
    scope: Annotated[str, Form(max_length=20)] = "all",
    cluster: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """The answer shows the token, this once."""
    try:
        made = await tokens.create_token(
            TokenIn.model_validate({"label": label, "days": days, "scopes": [scope], "cluster": cluster}), state, who
        )
    except (HeadwayError, ValueError) as error:
        await audit_failure(request, error)
        why = error.message if isinstance(error, HeadwayError) else "that token can't be made as asked"
        return see_other("/tokens", why, bad=True)
    return await _page(state, who, made)


@router.post("/tokens/{token_id}/revoke")
async def revoke(token_id: str, state: State, who: TokenOwner) -> Response:
    await tokens.delete_token(token_id, state, who)
    return see_other("/tokens", "The token is revoked; its person's browsers are signed out")


async def _page(state: State, who: TokenOwner, made: TokenOut | None = None) -> Response:
    found = sorted(await tokens.tokens_of(state, who), key=lambda one: -one.created_at)
    return render(
        "tokens.html",
        viewer=who,
        here="tokens",
        tokens=found,
        made=made,
        words=WORDS,
        lives=LIVES,
        clusters=[row.name for row in await state.store.clusters()],
        everybody=who.may(Right.ADMIN),
    )
