"""Back-channel logout of OpenID Connect: the provider says that a person or one of its sessions has ended, and what came
from it ends here at once. (OpenID Connect Back-Channel Logout 1.0)"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import Request

from headway.api.auth.oidc import LEEWAY_S, OidcProvider
from headway.api.auth.sign_in import provider_of, sign_in_attempt
from headway.api.http.client_address import client_address
from headway.errors import NotSignedIn
from headway.services.access.oidc_claims import subject_of
from headway.services.app_state import AppState
from headway.store.access.sessions import LogoutToken

LOGOUT_PATH = "/signin/oidc/logout"
EVENT = "http://schemas.openid.net/event/backchannel-logout"
MAX_AGE_S = 300  # a logout token is sent at once, so that an older one is a replay
_TYPES = frozenset({"logout+jwt", "application/logout+jwt", "jwt"})
_HINT = "the sign-in provider's log; docs/howto/sign-in-tls.md"


async def log_out_by_provider(state: AppState, request: Request, token: str) -> None:
    """Ends what came from the session, or from all sessions of the person, that the logout token names. Ends no session if the
    token names a person who never signed in here. Raises NotSignedIn for a token that is not valid or was used before,
    NotFound without a provider."""
    provider = provider_of(state)
    async with sign_in_attempt(state, request, "provider logout"):
        claims = await _valid_claims(provider, token)
        subject = claims.get(provider.settings.subject_claim)
        if subject is None and "sid" not in claims:
            raise _refused(f"it has neither {provider.settings.subject_claim} nor sid")
        person = await state.store.people.by_subject(subject_of(provider.settings, str(subject))) if subject else None
        known = person is not None or subject is None
        ended = await state.store.sessions.end_provider_sessions(
            LogoutToken(claims["jti"], MAX_AGE_S + 2 * LEEWAY_S),
            person=person.name if person else "",
            provider_session=str(claims.get("sid") or "")[:255] if known else "",
            address=client_address(request),
        )
        if ended is None:
            raise _refused("it was used before")
    for owner in ended:
        state.notebooks.end_sessions_of(owner)


async def _valid_claims(provider: OidcProvider, token: str) -> Mapping[str, Any]:
    """Returns the claims of a logout token. Raises NotSignedIn."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        found = await provider.decode(token)
        claims = dict(found.claims)
        essential: dict[str, Any] = {
            "iss": {"essential": True, "value": provider.settings.issuer},
            "aud": {"essential": True, "value": provider.settings.client_id},
            "iat": {"essential": True},
            "jti": {"essential": True},
            "events": {"essential": True},
        }
        jwt.JWTClaimsRegistry(now=lambda: int(time.time()), leeway=LEEWAY_S, **essential).validate(claims)
    except (JoseError, ValueError) as error:
        raise _refused(str(error)) from None
    fault = _fault(claims, str(found.header.get("typ") or "jwt"))
    if fault:
        raise _refused(fault)
    return claims


def _fault(claims: Mapping[str, Any], kind: str) -> str:
    """Returns why the claims are not those of a logout token; "" if they are."""
    events, named = claims["events"], [claims[name] for name in ("sub", "sid") if name in claims]
    if kind.lower() not in _TYPES:
        return f"its type is {kind[:40]!r}"
    if "nonce" in claims:
        return "it has a nonce, so it is an ID token"
    if not isinstance(events, dict) or not isinstance(events.get(EVENT), dict):
        return f"its events lack {EVENT}"
    if not named or not all(isinstance(one, str) and one for one in named):
        return "it names neither a person (sub) nor a session (sid)"
    if not isinstance(claims["jti"], str) or not claims["jti"]:
        return "its jti is not a text"
    if time.time() - float(claims["iat"]) > MAX_AGE_S + LEEWAY_S:
        return f"it was made more than {MAX_AGE_S} s ago"
    return ""


def _refused(why: str) -> NotSignedIn:
    return NotSignedIn(f"the logout token is not valid: {why}", hint=_HINT)
