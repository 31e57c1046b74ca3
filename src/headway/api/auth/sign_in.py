"""Browser sessions: sign-in by link, by name and token, or through the OpenID provider, and sign-out."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache

from fastapi import Request
from starlette.responses import Response

from headway.api.auth.dependencies import require_signed_in
from headway.api.auth.oidc import OidcProvider
from headway.api.http.client_address import client_address
from headway.domain.access.session_validity import OIDC_FLOW_S
from headway.errors import NotAllowed, NotFound, NotSignedIn
from headway.services.access.audit import write_audit_line
from headway.services.access.oidc_claims import require_links_and_tokens
from headway.services.access.role_rights import principal_for
from headway.services.app_state import AppState
from headway.services.login_throttle import account_key, address_key
from headway.services.server_settings import Oidc
from headway.store import Person, SignIn


@contextlib.asynccontextmanager
async def sign_in_attempt(state: AppState, request: Request, how: str, account: str = "") -> AsyncIterator[None]:
    """Context of a sign-in attempt. Counts failures by address and by account, and audits them. Raises TooManyTries
    instead of a failure that is one too many; an attempt that succeeds is never refused."""
    # Links, tokens and the provider's answers have at least 256 random bits, so guessing cannot succeed. Checking the
    # count before the credentials would lock out everyone who shares the address with a client that guesses.
    try:
        yield
    except (NotSignedIn, NotAllowed) as error:
        keys = (address_key(client_address(request)), *((account_key(account),) if account else ()))
        now = state.clock()
        state.login_throttle.check(now, *keys)
        state.login_throttle.record_failure(now, *keys)
        detail = {"how": how, "why": error.message[:200]}
        await state.store.audit.record(
            account, "signin", account, detail, address=client_address(request), result="refused"
        )
        raise
    if account:
        state.login_throttle.record_success(account_key(account))


async def sign_in_by_code(state: AppState, request: Request, code: str) -> tuple[Person, str, float]:
    """Returns (person, cookie, expiry in unix seconds) for a sign-in link, which is used up. Raises NotSignedIn, and
    NotAllowed where only the provider signs people in."""
    async with sign_in_attempt(state, request, "link"):
        require_links_and_tokens(state.settings.oidc)
        spent = await state.store.sessions.redeem_signin_code(code, **_client_of(request)) if code else None
        if spent is None:
            raise NotSignedIn(
                "this sign-in link was used already or is too old", hint="create one with headway token link"
            )
    return spent


async def sign_in_by_token(state: AppState, request: Request, person: str, token: str) -> tuple[Person, SignIn]:
    """Returns (person, their sign-in) for their name and one of their tokens. Raises NotSignedIn. Raises NotAllowed for
    a token that is limited to scopes or a cluster, because a browser session has all rights of its person, and where only
    the provider signs people in."""
    holder = await state.store.tokens.holder(token)
    async with sign_in_attempt(state, request, "token", person):
        require_links_and_tokens(state.settings.oidc)
        if holder is None or holder.person.name != person:
            raise NotSignedIn("the token is not valid for this person", hint="create one with headway token create")
        if "all" not in holder.scopes or holder.cluster:
            raise NotAllowed(
                "this token is restricted and can't be used to sign in", hint="create a link with headway token link"
            )
    return holder.person, SignIn(state.clock(), holder.provider_session, holder.id)


async def start_provider_flow(state: AppState, *, again: bool, next_path: str) -> tuple[str, str]:
    """Returns (the provider's address, the state to store in a cookie). Arguments as of `OidcProvider.start_flow`."""
    return await provider_of(state).start_flow(state, again=again, next_path=next_path)


async def sign_in_by_provider(
    state: AppState, request: Request, parameters: Mapping[str, str]
) -> tuple[Person, SignIn, str]:
    """Returns (the person who comes back from the provider, their sign-in, the path of the next page). `parameters` are
    the query parameters of the redirect. Raises as `OidcProvider.finish_flow`."""
    async with sign_in_attempt(state, request, "provider"):
        return await provider_of(state).finish_flow(state, parameters, request.cookies.get(flow_cookie(state), ""))


async def open_session(
    state: AppState, request: Request, person: Person, sign_in: SignIn, answer: Response, how: str
) -> None:
    """Signs the browser in. Its cookie is a secret of 256 bits that neither scripts nor pages of other sites can use."""
    cookie, expires = await state.store.sessions.create(person.name, how, sign_in, **_client_of(request))
    await set_session_cookie(state, request, person, answer, how, cookie, expires)


async def set_session_cookie(
    state: AppState, request: Request, person: Person, answer: Response, how: str, cookie: str, expires: float
) -> None:
    """Sets the session cookie on the response, ends the browser's previous session and writes the audit entry.
    `expires` is in unix seconds."""
    before = request.cookies.get(state.settings.cookie, "")
    if before:
        # The browser replaces its old cookie, so that session must not stay usable
        await state.store.sessions.delete(before)
    await write_audit_line(state, principal_for(person, client_address(request)), "signin", person.name, how=how)
    answer.set_cookie(
        state.settings.cookie,
        cookie,
        max_age=int(expires - state.clock()),
        httponly=True,
        samesite="strict",
        secure=state.settings.https,
        path="/",
    )


async def close_session(state: AppState, request: Request, answer: Response) -> None:
    """Signs the browser out. Raises NotAllowed unless the request comes from a page of this server. A session that has
    already ended is not an error."""
    with contextlib.suppress(NotSignedIn):
        who = await require_signed_in(request)
        await state.store.sessions.delete(request.cookies.get(state.settings.cookie, ""))
        state.notebooks.end_sessions_of(who.person)
        await write_audit_line(state, who, "signout", who.person)
    answer.delete_cookie(state.settings.cookie, path="/", secure=state.settings.https, httponly=True, samesite="strict")


def _client_of(request: Request) -> dict[str, str]:
    """Returns the address and browser to store with a session, so that its person recognises it."""
    return {"address": client_address(request), "browser": request.headers.get("user-agent", "")}


def flow_cookie(state: AppState) -> str:
    """Returns the name of the cookie of the provider flow."""
    return f"{state.settings.cookie}_oidc"


def set_flow_cookie(state: AppState, answer: Response, secret: str) -> None:
    """Sets the cookie of the provider flow. It is SameSite=Lax, because the provider's page redirects the browser back
    and this cookie must be sent then."""
    answer.set_cookie(
        flow_cookie(state),
        secret,
        max_age=int(OIDC_FLOW_S),
        httponly=True,
        samesite="lax",
        secure=state.settings.https,
        path="/",  # the prefix __Host- allows no other
    )


def delete_flow_cookie(state: AppState, answer: Response) -> None:
    """Deletes the cookie of the provider flow, once the flow has ended or failed."""
    answer.delete_cookie(flow_cookie(state), path="/", secure=state.settings.https, httponly=True, samesite="lax")


def provider_of(state: AppState) -> OidcProvider:
    """Returns the sign-in provider. Raises NotFound without one."""
    if state.settings.oidc is None:
        raise NotFound("this server has no sign-in provider", hint="set HEADWAY_OIDC_ISSUER to use one")
    return _new_provider(state.settings.oidc)


@lru_cache(maxsize=4)
def _new_provider(settings: Oidc) -> OidcProvider:
    return OidcProvider(settings)
