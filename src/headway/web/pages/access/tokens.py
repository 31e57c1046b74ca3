"""Access tokens and browser sessions: the person's own ones, for admins all."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.failure_audit import audit_failure
from headway.errors import HeadwayError, SignInAgain
from headway.schemas.access.tokens import DEFAULT_DAYS, TokenIn, TokenOut
from headway.services.access.role_rights import TOKEN_SCOPES, Right
from headway.services.access.sessions import end_session, list_sessions
from headway.services.access.tokens import create_token, list_tokens, revoke_token
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.browser_name import browser_name

router = page_router()
SCOPE_LABELS = {
    "all": "everything you may do",
    "read": "seeing clusters, nodes and the queue",
    "plan": "seeing, and planning changes of a cluster",
    "submit": "seeing, and submitting, cancelling and reading jobs",
    "operate": "seeing, and managing nodes and incidents",
    "admin": "seeing, and changing clusters, people and settings",
}
LIFETIMES = ((7, "a week"), (30, "30 days"), (90, "90 days"), (365, "a year"))
assert SCOPE_LABELS.keys() == TOKEN_SCOPES.keys()


@router.get("/tokens")
async def page(request: Request, state: State, who: TokenOwner) -> Response:
    """Returns the page of tokens and sessions."""
    return await _page(request, state, who)


@router.post("/tokens")
async def create(
    request: Request,
    state: State,
    who: TokenOwner,
    label: Annotated[str, Form(max_length=200)] = "",
    days: Annotated[int, Form(ge=1, le=36_500)] = DEFAULT_DAYS,
    scope: Annotated[str, Form(max_length=20)] = "all",
    cluster: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Creates a token. Only this answer shows it."""
    try:
        made = await create_token(
            state,
            who,
            TokenIn.model_validate({"label": label, "days": days, "scopes": [scope], "cluster": cluster}),
        )
    except SignInAgain:
        raise
    except (HeadwayError, ValueError) as error:
        await audit_failure(request, error)
        why = (
            error.message
            if isinstance(error, HeadwayError)
            else "the token's label, lifetime, scope or cluster is not valid"
        )
        return redirect_with_message("/tokens", why, is_error=True)
    return await _page(request, state, who, made)


@router.post("/tokens/{token_id}/revoke")
async def revoke(token_id: str, state: State, who: TokenOwner) -> Response:
    """Revokes a token."""
    await revoke_token(state, who, token_id)
    return redirect_with_message("/tokens", "The token is revoked; its person's browsers are signed out")


@router.post("/sessions/{session_id}/end")
async def end(session_id: str, state: State, who: TokenOwner) -> Response:
    """Signs a browser out."""
    await end_session(state, who, session_id)
    return redirect_with_message("/tokens", "The browser is signed out")


async def _page(request: Request, state: State, who: TokenOwner, made: TokenOut | None = None) -> Response:
    found = sorted(await list_tokens(state, who), key=lambda token: -token.created_at)
    return render(
        "tokens.html",
        viewer=who,
        here="tokens",
        tokens=found,
        sessions=await list_sessions(state, who, request.cookies.get(state.settings.cookie, "")),
        browser_name=browser_name,
        ways={"link": "sign-in link", "token": "name and token", "provider": "sign-in provider"},
        made=made,
        words=SCOPE_LABELS,
        lives=LIFETIMES,
        default_days=DEFAULT_DAYS,
        clusters=[row.name for row in await state.store.clusters.all()],
        everybody=who.may(Right.ADMIN),
    )
