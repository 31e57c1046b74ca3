"""Access tokens and sign-in links: creating, listing and revoking them. When one stops being valid:
domain/access/token_lifetime.py and session_validity.py."""

from __future__ import annotations

from urllib.parse import quote

from headway.domain.access.role import Role
from headway.domain.access.token_scope import TokenScope
from headway.errors import NotAllowed, NotFound, Refused
from headway.schemas.access.people import PersonIn
from headway.schemas.access.tokens import SignInLinkOut, TokenIn, TokenOut
from headway.services.access.audit import write_audit_line
from headway.services.access.oidc_claims import require_links_and_tokens
from headway.services.access.people import store_person
from headway.services.access.role_rights import TOKEN_SCOPES, Principal, Right
from headway.services.app_state import AppState
from headway.services.request_limits import MOST_TOKENS, limit_links
from headway.store import SignIn, Token


async def list_tokens(state: AppState, who: Principal) -> list[TokenOut]:
    """Returns the person's own tokens, and for an admin those of all people."""
    return [_token_out(row) for row in await _visible_tokens(state, who)]


async def create_token(state: AppState, who: Principal, request: TokenIn) -> TokenOut:
    """Creates a token for the person. Admins can create one for any person; an unknown person is added with `role`.
    Only this response holds the token itself. Raises NotAllowed, and NotFound for an unknown cluster; SignInAgain for a
    token of a scope that may do what can't be undone, which an old session must not get around by it; Refused for a person who
    has MOST_TOKENS."""
    person = request.person or who.person
    if TokenScope.SCIM in request.scopes:
        _check_scim_token(state, who, request)
    if any({Right.ADMIN, Right.PROVISION} & TOKEN_SCOPES[scope] for scope in request.scopes):
        who.require_recent_sign_in(state.clock(), f"create a token of scope {' '.join(request.scopes)}")
    if (person != who.person or request.role is not None) and not who.may(Right.ADMIN):
        raise NotAllowed(
            f"{who.person} may create tokens only for their own account and without a role", hint="ask an admin"
        )
    if request.cluster:
        await state.clusters.row(request.cluster)
    await _check_number(state, person)
    await _ensure_person(state, who, person, request)
    row, secret = await state.store.tokens.create(
        person,
        label=request.label,
        days=request.days,
        scopes=tuple(dict.fromkeys(request.scopes)),
        cluster=request.cluster,
        provider_session=who.provider_session if person == who.person else None,
    )
    detail = {"scopes": list(row.scopes), "cluster": row.cluster, "expires_at": row.expires_at}
    await write_audit_line(state, who, "token.create", person, id=row.id, role=row.role, label=row.label, **detail)
    return _token_out(row, secret)


async def _check_number(state: AppState, person: str) -> None:
    """Raises Refused if the person has as many valid tokens as a person may have."""
    ends = (row.expires_at for row in await state.store.tokens.all(person))
    if sum(end is None or end > state.clock() for end in ends) >= MOST_TOKENS:
        raise Refused(
            f"{person} has {MOST_TOKENS} tokens", hint="revoke those that are not used: headway token revoke ID"
        )


def _check_scim_token(state: AppState, who: Principal, request: TokenIn) -> None:
    """Raises NotAllowed unless an admin asks, and Refused if the token could do anything else or no settings say what groups
    mean."""
    if not who.may(Right.ADMIN):
        raise NotAllowed(f"{who.person} may not create a token of scope scim", hint="ask an admin")
    if set(request.scopes) != {TokenScope.SCIM} or request.cluster:
        raise Refused("a token of scope scim has no other scope and is for all clusters", hint="create two tokens")
    if state.settings.oidc is None:
        raise Refused("SCIM needs a sign-in provider", hint="set HEADWAY_OIDC_ISSUER: docs/howto/scim.md")


async def _ensure_person(state: AppState, who: Principal, person: str, request: TokenIn) -> None:
    """Adds the person, or gives them the role that the request names."""
    known = await state.store.people.get(person)
    if known is None or (request.role is not None and request.role != known.role):
        if person == who.person and request.role not in (None, Role.ADMIN):
            raise Refused("an admin can't take their own role away", hint="let another admin do it")
        await store_person(state, who, person, PersonIn(role=request.role or Role.MEMBER))


async def revoke_token(state: AppState, who: Principal, token_id: str) -> None:
    """Revokes a token. Browsers that signed in with it, or with a link made by it, are signed out, and its unused links become
    invalid. All notebook sessions of its person end, because some may have been opened with it. Raises NotFound."""
    token = next((row for row in await _visible_tokens(state, who) if row.id == token_id), None)
    if token is None:
        raise NotFound(f"no token {token_id!r}", hint="headway token ls")
    await state.store.tokens.delete(token_id)
    state.notebooks.end_sessions_of(token.person)
    await write_audit_line(state, who, "token.delete", token.person, id=token_id, label=token.label)


async def create_signin_link(state: AppState, who: Principal, base_url: str) -> SignInLinkOut:
    """Returns a link that signs a browser in as this person, once, within five minutes. `base_url` is the server's
    address that is used if its settings have none. Raises NotAllowed where only the OpenID provider signs people in, and
    TooManyAtOnce."""
    require_links_and_tokens(state.settings.oidc)
    limit_links(state.link_buckets, who.person, state.clock())
    authenticated_at = state.clock() if who.authenticated_at is None else who.authenticated_at
    made_in = SignIn(authenticated_at, who.provider_session, who.token_id)
    code, expires_at = await state.store.sessions.create_signin_code(who.person, made_in)
    await write_audit_line(state, who, "signin.link", who.person)
    base = state.settings.url or base_url.rstrip("/")
    return SignInLinkOut(url=f"{base}/signin?code={quote(code)}", expires_at=expires_at)


async def _visible_tokens(state: AppState, who: Principal) -> list[Token]:
    return list(await state.store.tokens.all(None if who.may(Right.ADMIN) else who.person))


def _token_out(row: Token, secret: str | None = None) -> TokenOut:
    return TokenOut.model_validate(row).model_copy(update={"token": secret})
