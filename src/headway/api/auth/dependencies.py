"""FastAPI parameters that authenticate a request and check its right.

An endpoint names the right it needs as a parameter type: `who: Anyone | Member | Operator | Admin`. A new endpoint also needs
a row in tests/support/api/access_table.py, which lists who gets through and who is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Annotated

import structlog
from fastapi import Depends, Request

from headway.api.auth.same_origin import require_same_origin
from headway.api.http.client_address import client_address
from headway.domain.access.session_validity import SESSION_IDLE_S
from headway.errors import HeadwayError, NotSignedIn
from headway.services.access.role_rights import Principal, Right, principal_for
from headway.services.app_state import AppState
from headway.services.login_throttle import address_key
from headway.services.request_limits import limit_requests
from headway.store import TokenHolder

log = structlog.get_logger("headway.api.sign_in")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def app_state(request: Request) -> AppState:
    """Returns the state that `create_app` was given."""
    state: AppState = request.app.state.headway
    return state


async def _state(request: Request) -> AppState:
    """Returns the same as `app_state`. It is a coroutine because FastAPI runs plain functions in a thread, which costs
    more than the rest of a request."""
    return app_state(request)


async def authenticate(request: Request) -> Principal | None:
    """Returns the principal of the request's token or session cookie, or None if it has neither.

    Raises NotSignedIn for an unknown or expired one, NotAllowed for a cookie sent from another site's page, TooManyTries, and
    TooManyAtOnce. A request that was refused once stays refused: the limits depend on the time, and the middleware of
    Idempotency-Key, which comes before the endpoint, passes a refused request on without its key."""
    refusal: HeadwayError | None = getattr(request.state, "refusal", None)
    if refusal is not None:
        raise refusal
    try:
        return await _authenticate(request)
    except HeadwayError as error:
        request.state.refusal = error
        raise


async def _authenticate(request: Request) -> Principal | None:
    state, address = app_state(request), client_address(request)
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, token = header.partition(" ")
        holder = await state.store.tokens.holder(token.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            await _count_unknown_token(state, request)
            raise NotSignedIn("the token is unknown or has expired", hint="HEADWAY_TOKEN, or `headway token create`")
        _log_token_use(state, holder, address)
        principal = principal_for(holder.person, address, holder.scopes, holder.cluster)
        return _attach(request, replace(principal, provider_session=holder.provider_session, token_id=holder.id))
    cookie = request.cookies.get(state.settings.cookie, "")
    if not cookie:
        return None
    session = await state.store.sessions.holder(cookie)
    if session is None:
        raise NotSignedIn("the session has ended", hint="ask `headway server status` for a new sign-in link")
    if request.method not in SAFE_METHODS:
        require_same_origin(request, state.settings.url)
    return _attach(request, replace(principal_for(session.person, address), **asdict(session.sign_in)))


async def require_signed_in(request: Request) -> Principal:
    """Returns the principal as `authenticate` does, but raises NotSignedIn for a request without token and session."""
    principal = await authenticate(request)
    if principal is None:
        raise NotSignedIn("the request has no token", hint="set HEADWAY_TOKEN, or sign in with a link")
    return principal


def require_right(right: Right, *, any_cluster: bool = False) -> Callable[[Request], Awaitable[Principal]]:
    """Returns a dependency that returns the request's principal and raises NotAllowed without the right.

    A token for one cluster is accepted only below that cluster's address. With `any_cluster` it is also accepted at
    addresses that name no cluster; the endpoint must then filter with `who.may_see_cluster`."""

    async def dependency(request: Request) -> Principal:
        principal = await require_signed_in(request)
        cluster = request.path_params.get("name", "")
        if cluster or not any_cluster:
            principal.require_cluster(cluster)
        principal.require(right)
        return principal

    return dependency


def _log_token_use(state: AppState, holder: TokenHolder, address: str) -> None:
    """Logs the first use of a token from an address within the time after which an unused session would end."""
    if state.token_uses.is_first((holder.id, address), state.clock(), SESSION_IDLE_S):
        scopes = " ".join(holder.scopes)
        log.info("sign-in by token", person=holder.person.name, id=holder.id, scopes=scopes, address=address)


async def _count_unknown_token(state: AppState, request: Request) -> None:
    """Logs the failure, and counts it against the client's address. Valid tokens are never throttled, even if others from the
    same address fail."""
    address, now = client_address(request), state.clock()
    key = address_key(address)
    state.login_throttle.check(now, key)
    log.warning("unknown token", address=address, method=request.method, path=request.url.path[:200])
    if state.login_throttle.record_failure(now, key):
        await state.store.audit.record("", "token.unknown", request.url.path, address=address, result="refused")


def _attach(request: Request, principal: Principal) -> Principal:
    """Stores the principal with the request, so that a later refusal is audited under the person's name. Returns it. Counts
    the request, once. Raises TooManyAtOnce if the person sends too many requests."""
    key, first_sent_at = request.scope.get("state", {}).get("idempotency", ("", 0.0))
    principal = replace(principal, idempotency_key=key, first_sent_at=first_sent_at) if key else principal
    request.state.principal = principal
    if not getattr(request.state, "counted", False):
        state = app_state(request)
        limit_requests(state.request_buckets, principal.person, principal.role, state.clock())
        request.state.counted = True
    return principal


State = Annotated[AppState, Depends(_state)]
Anyone = Annotated[Principal, Depends(require_right(Right.READ))]
# For lists over all clusters: filter with who.may_see_cluster.
AnyoneAllClusters = Annotated[Principal, Depends(require_right(Right.READ, any_cluster=True))]
TokenOwner = Annotated[Principal, Depends(require_right(Right.OWN_TOKENS))]
Member = Annotated[Principal, Depends(require_right(Right.RUN_JOBS))]
Planner = Annotated[Principal, Depends(require_right(Right.PLAN_CLUSTER))]
Approver = Annotated[Principal, Depends(require_right(Right.APPROVE_MODELS))]
Operator = Annotated[Principal, Depends(require_right(Right.OPERATE_NODES))]
Provisioner = Annotated[Principal, Depends(require_right(Right.PROVISION))]
Admin = Annotated[Principal, Depends(require_right(Right.ADMIN))]
