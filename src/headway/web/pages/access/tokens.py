"""Access tokens and browser sessions: the person's own ones, for admins all."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from starlette.responses import Response

from headway.api.auth.dependencies import State, TokenOwner
from headway.api.http.failure_audit import audit_failure
from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS
from headway.domain.access.token_scope import TokenScope
from headway.errors import HeadwayError, SignInAgain
from headway.schemas.access.tokens import TokenIn, TokenOut
from headway.services.access import session_list, tokens
from headway.services.access.role_rights import Right
from headway.services.access.session_list import list_sessions
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.browser_name import browser_name

router = page_router()
SCOPE_LABELS = {
    TokenScope.ALL: "everything you may do",
    TokenScope.READ: "seeing clusters, nodes and the queue",
    TokenScope.PLAN: "seeing, and planning changes of a cluster",
    TokenScope.SUBMIT: "seeing, and submitting, cancelling and reading jobs",
    TokenScope.OPERATE: "seeing, and managing nodes and incidents",
    TokenScope.ADMIN: "seeing, and changing clusters, people and settings",
    TokenScope.SCIM: "an identity provider that sends people and groups (SCIM)",
}
LIFETIMES = ((7, "a week"), (30, "30 days"), (90, "90 days"), (365, "a year"))
assert SCOPE_LABELS.keys() == set(TokenScope)


@router.get("/tokens")
async def tokens_page(request: Request, state: State, who: TokenOwner) -> Response:
    """Returns the page of tokens and sessions."""
    return await _page(request, state, who)


@router.post("/tokens")
async def create_token(
    request: Request,
    state: State,
    who: TokenOwner,
    label: Annotated[str, Form(max_length=200)] = "",
    days: Annotated[int, Form(ge=1, le=MAX_TOKEN_DAYS)] = DEFAULT_TOKEN_DAYS,
    scope: Annotated[str, Form(max_length=20)] = "all",
    cluster: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Creates a token. Only this answer shows it."""
    try:
        made = await tokens.create_token(
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
async def revoke_token(token_id: str, state: State, who: TokenOwner) -> Response:
    """Revokes a token."""
    await tokens.revoke_token(state, who, token_id)
    return redirect_with_message("/tokens", "The token is revoked; browsers that signed in with it are signed out")


@router.post("/sessions/{session_id}/end")
async def end_session(session_id: str, state: State, who: TokenOwner) -> Response:
    """Signs a browser out."""
    await session_list.end_session(state, who, session_id)
    return redirect_with_message("/tokens", "The browser is signed out")


async def _page(request: Request, state: State, who: TokenOwner, made: TokenOut | None = None) -> Response:
    found = sorted(await tokens.list_tokens(state, who), key=lambda token: -token.created_at)
    may_make_scim = who.may(Right.ADMIN) and state.settings.oidc is not None
    return render(
        "tokens.html",
        viewer=who,
        here="tokens",
        tokens=found,
        sessions=await list_sessions(state, who, request.cookies.get(state.settings.cookie, "")),
        browser_name=browser_name,
        ways={"link": "sign-in link", "token": "name and token", "provider": "sign-in provider"},
        made=made,
        words={scope: label for scope, label in SCOPE_LABELS.items() if scope != "scim" or may_make_scim},
        lives=LIFETIMES,
        default_days=DEFAULT_TOKEN_DAYS,
        clusters=[row.name for row in await state.store.clusters.all()],
        everybody=who.may(Right.ADMIN),
    )
