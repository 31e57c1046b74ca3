"""Sign-in through an OpenID provider: the code flow with PKCE, a state that only this browser has, and a nonce.

A person is identified by the provider's issuer and subject, which users cannot choose, never by a name or a mail
address. Their role and Linux user are set by an admin or by the claims that the server's settings name; otherwise
they are viewers."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from headway.errors import Conflict, NotAllowed, NotSignedIn, Unreachable
from headway.services.access.oidc_claims import require_strength, role_from_claims, subject_of
from headway.services.access.people import delete_person
from headway.services.access.provider_people import update_from_provider
from headway.services.app_state import AppState
from headway.services.scim.people_sync import sign_in_claims
from headway.services.server_settings import Oidc
from headway.store import Person, SignIn

if TYPE_CHECKING:
    import httpx
    from joserfc.jwk import KeySet
    from joserfc.jwt import Token

CALLBACK_PATH = "/signin/oidc/back"
PROVIDER = "sign-in provider"  # in the audit trail
# Only signatures with the provider's private key are accepted; never "none", never a shared secret.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
_TIMEOUT_S = 10.0
_KEPT_S = 3600.0  # seconds that the provider's description and keys are cached
_KEYS_LEAST_S = 5.0  # seconds between two reads of the provider's keys
LEEWAY_S = 60  # allowed clock difference
log = structlog.get_logger("headway.api.oidc")
_HINT = "headway server logs; HEADWAY_OIDC_ISSUER names the provider"


class OidcProvider:
    """One OpenID provider, configured from its discovery document."""

    def __init__(self, settings: Oidc) -> None:
        self.settings = settings
        self._about: Mapping[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._keys_asked_at = -math.inf
        self._lock = asyncio.Lock()
        self._keys_lock = asyncio.Lock()

    async def start_flow(self, state: AppState, *, again: bool = False, next_path: str = "/") -> tuple[str, str]:
        """Returns (address of the provider to redirect the browser to, state that the browser must return). `again`: the
        provider must ask for the password also of a person who is signed in there; `next_path`: the page to show after
        the sign-in."""
        from authlib.common.security import generate_token

        about = await self._description()
        nonce, verifier = generate_token(48), generate_token(64)
        async with self._client(state) as client:
            url, secret = client.create_authorization_url(
                str(about["authorization_endpoint"]),
                state=generate_token(48),
                code_verifier=verifier,
                nonce=nonce,
                **({"prompt": "login", "max_age": "0"} if again else {}),
                **({"acr_values": " ".join(self.settings.acr)} if self.settings.acr else {}),
            )
        await state.store.sessions.start_oidc_flow(secret, nonce, verifier, again=again, next_path=next_path)
        return str(url), str(secret)

    async def finish_flow(
        self, state: AppState, parameters: Mapping[str, str], kept: str
    ) -> tuple[Person, SignIn, str]:
        """Returns (the person who comes back from the provider, their sign-in, the path of the page to show).

        `parameters` are the query parameters of the redirect, `kept` is the state in the browser's cookie. Raises
        NotSignedIn for an invalid response, and NotAllowed for a person without a role."""
        secret = parameters.get("state", "")
        if not secret or not hmac.compare_digest(secret.encode(), kept.encode()):
            raise NotSignedIn("this sign-in did not start in this browser", hint="start again on the sign-in page")
        flow = await state.store.sessions.finish_oidc_flow(secret)
        if flow is None:
            raise NotSignedIn("this sign-in took too long, or has ended already", hint="begin again")
        if parameters.get("error") or not parameters.get("code"):
            why = parameters.get("error_description") or parameters.get("error") or "no reason given"
            raise NotSignedIn(f"the sign-in provider refused: {why[:200]}", hint="sign in again, or ask an admin")
        id_token, access_token = await self._tokens(state, parameters["code"], flow.verifier)
        claims = await self._claims(id_token, flow.nonce)
        require_strength(self.settings, claims)
        sign_in = _sign_in(claims, state.clock())
        if flow.again and sign_in.authenticated_at < flow.started_at - LEEWAY_S:
            raise NotSignedIn(
                "the sign-in provider did not ask for the password again, or does not say so (claim auth_time)",
                hint="begin again" if self.settings.only else "sign in by a link: headway token link",
            )
        person = await self._person(state, {**await self._more(access_token, str(claims["sub"])), **claims})
        return person, sign_in, flow.next_path

    async def _tokens(self, state: AppState, code: str, verifier: str) -> tuple[str, str]:
        """Returns (id token, access token) for the authorization code."""
        import httpx
        from authlib.common.errors import AuthlibBaseError

        about = await self._description()
        try:
            async with self._client(state) as client:
                answer = await client.fetch_token(str(about["token_endpoint"]), code=code, code_verifier=verifier)
        except AuthlibBaseError as error:
            raise NotSignedIn(f"the sign-in provider refused: {error.error}", hint="begin again") from None
        except (httpx.HTTPError, ValueError) as error:
            raise _unreachable(self.settings, error) from None
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise NotSignedIn("the sign-in provider returned no ID token", hint=_HINT)
        return token, str(answer.get("access_token") or "")

    async def _more(self, access_token: str, subject: str) -> Mapping[str, Any]:
        """Returns the claims of the provider's userinfo endpoint, because many providers give names and groups only
        there."""
        url = str((await self._description()).get("userinfo_endpoint") or "")
        if not url or not access_token:
            return {}
        found = await self._get(url, access_token)
        if found.get("sub") != subject:
            raise NotSignedIn("the sign-in provider returned two different people", hint="begin again")
        return found

    async def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Returns the claims of the id token. Raises NotSignedIn unless it is signed by the provider, issued for this
        server, not expired, and has this sign-in's nonce."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            claims = dict((await self.decode(token)).claims)
            essential: dict[str, Any] = {
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
                "nonce": {"essential": True, "value": nonce},
                "exp": {"essential": True},
                "iat": {"essential": True},
                "sub": {"essential": True},
            }
            jwt.JWTClaimsRegistry(now=lambda: int(time.time()), leeway=LEEWAY_S, **essential).validate(claims)
        except (JoseError, ValueError) as error:
            raise NotSignedIn(f"the sign-in provider's answer is not valid: {error}", hint="begin again") from None
        others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if len(others) > 1 and claims.get("azp") != self.settings.client_id:
            raise NotSignedIn("the sign-in provider's answer belongs to another sign-in", hint="begin again")
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise NotSignedIn("the sign-in provider's answer has no subject", hint=_HINT)
        return claims

    async def decode(self, token: str) -> Token:
        """Returns a token that the provider signed; its claims are not checked. Raises JoseError or ValueError for one that
        it did not sign, or not by a public key."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        supported = (await self._description()).get("id_token_signing_alg_values_supported")
        usable = sorted(ALGORITHMS.intersection(supported) if isinstance(supported, list) else {"RS256"})
        try:
            return jwt.decode(token, await self._keyset(), algorithms=usable)
        except (JoseError, ValueError):  # the provider may have changed its keys
            return jwt.decode(token, await self._keyset(fresh=True), algorithms=usable)

    async def _person(self, state: AppState, claims: Mapping[str, Any]) -> Person:
        """Returns the person of these claims, who is added at the first sign-in. The role is set from the claims at
        every sign-in. A person whose role claim names no role any more is removed, with tokens and sessions; one whose
        claims lack the role claim is only refused, because a faulty setting of the provider must not delete people. Of
        people whom the provider sends by SCIM only SCIM removes one."""
        subject = claims.get(self.settings.subject_claim)
        if not isinstance(subject, str) or not subject:
            raise NotSignedIn(
                f"the sign-in provider sent no claim {self.settings.subject_claim}", hint="HEADWAY_OIDC_SUBJECT_CLAIM"
            )
        known = await state.store.people.by_subject(subject_of(self.settings, subject))
        if known is not None and known.disabled:
            raise NotAllowed(f"{known.name} is disabled", hint="ask an admin of Headway")
        sent = await sign_in_claims(state, known, claims) if known is not None else None
        claims, reading = (claims, None) if sent is None else sent
        try:
            role = role_from_claims(self.settings, claims)
        except NotAllowed:
            if known is not None and sent is None and self.settings.role_claim in claims:
                with contextlib.suppress(Conflict):  # the last admin stays
                    await delete_person(state, known.name, by=known.name)
                    await state.store.audit.record(known.name, "person.remove", known.name, {"by": PROVIDER})
            raise
        return await update_from_provider(state, known, self.settings, claims, role, PROVIDER, reading=reading)

    def _client(self, state: AppState) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # authlib warns about the choice of HTTP library
            from authlib.integrations.httpx_client import AsyncOAuth2Client

        secret = self.settings.client_secret
        methods = self._about.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        return AsyncOAuth2Client(
            self.settings.client_id,
            secret or None,
            token_endpoint_auth_method=method if secret else "none",
            scope=" ".join(("openid", "profile", "email", *self.settings.scopes)),
            redirect_uri=f"{state.settings.url}{CALLBACK_PATH}",
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
        )

    async def _description(self) -> Mapping[str, Any]:
        async with self._lock:
            if not self._about or time.monotonic() - self._read_at > _KEPT_S:
                about = await self._get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
                if about.get("issuer") != self.settings.issuer:
                    raise Unreachable(
                        f"the sign-in provider's issuer is {str(about.get('issuer'))[:200]}, not {self.settings.issuer}",
                        hint="HEADWAY_OIDC_ISSUER must match its issuer exactly",
                    )
                missing = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - about.keys()
                if missing:
                    raise Unreachable(
                        f"the sign-in provider's configuration lacks {', '.join(sorted(missing))}", hint=_HINT
                    )
                self._about, self._read_at = about, time.monotonic()
        return self._about

    async def _keyset(self, *, fresh: bool = False) -> KeySet:
        """Returns the provider's keys, read again if they are old, or with `fresh`. Forged tokens must not flood the
        provider, so that it is asked every _KEYS_LEAST_S at most, also when it does not answer."""
        from joserfc.jwk import KeySet

        url = str((await self._description())["jwks_uri"])
        async with self._keys_lock:
            age_s = time.monotonic() - self._keys_asked_at
            if age_s > _KEPT_S:
                self._keys = None
            if (fresh or self._keys is None) and age_s >= _KEYS_LEAST_S:
                self._keys_asked_at = time.monotonic()
                found: Any = await self._get(url)
                self._keys = KeySet.import_key_set(found)
            if self._keys is None:
                raise Unreachable(
                    f"the sign-in provider {self.settings.issuer} gave no keys a moment ago", hint="try again; " + _HINT
                )
            return self._keys

    async def _get(self, url: str, access_token: str = "") -> Mapping[str, Any]:
        import httpx

        headers = {"accept": "application/json"}
        if access_token:
            headers["authorization"] = f"Bearer {access_token}"
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
                answer = await client.get(url, headers=headers)
                answer.raise_for_status()
                found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _unreachable(self.settings, error) from None
        if not isinstance(found, dict):
            raise _unreachable(self.settings, ValueError("its answer is not valid"))
        return found


def _unreachable(settings: Oidc, error: httpx.HTTPError | ValueError) -> Unreachable:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    # Also logged: the person who sees the error on the sign-in page can't mend it.
    log.warning("the sign-in provider can't be used", issuer=settings.issuer, error=reason)
    return Unreachable(f"the sign-in provider {settings.issuer} can't be used: {reason}", hint=_HINT)


def _sign_in(claims: Mapping[str, Any], now: float) -> SignIn:
    """Returns when the provider last asked for the password, and its session. `now`: unix seconds of the server's clock."""
    at, session = claims.get("auth_time"), claims.get("sid")
    age_s = time.time() - at if isinstance(at, int | float) and not isinstance(at, bool) else None
    authenticated_at = 0.0 if age_s is None else now - max(0.0, age_s)
    return SignIn(authenticated_at, session[:255] if isinstance(session, str) else "")
