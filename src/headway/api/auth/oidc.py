"""Sign-in through an OpenID provider: the code flow with PKCE, a state that only this browser has, and a nonce.

A person is identified by the provider's issuer and subject, which users cannot choose, never by a name or a mail
address. Their role and Linux user are set by an admin or by the claims that the server's settings name; otherwise
they are viewers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.domain.access.role import Role
from headway.errors import Conflict, NotAllowed, NotSignedIn, Refused, Unreachable
from headway.services.access.people import delete_person, require_unused_user
from headway.services.app_state import AppState
from headway.services.server_settings import Oidc
from headway.store import Person, SignIn
from headway.validation.syntax_rules import user_name_fault

if TYPE_CHECKING:
    import httpx
    from joserfc.jwk import KeySet
    from joserfc.jwt import Token

CALLBACK_PATH = "/signin/oidc/back"
# Only signatures with the provider's private key are accepted; never "none", never a shared secret.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
_TIMEOUT_S = 10.0
_KEPT_S = 3600.0  # seconds that the provider's description and keys are cached
_KEYS_LEAST_S = 5.0  # seconds between two reads of the provider's keys
LEEWAY_S = 60  # allowed clock difference
_HINT = "headway server logs; HEADWAY_OIDC_ISSUER names the provider"


class Provider:
    """One OpenID provider, configured from its discovery document."""

    def __init__(self, settings: Oidc) -> None:
        self.settings = settings
        self._about: Mapping[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._keys_read_at = 0.0
        self._lock = asyncio.Lock()

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
        sign_in = _sign_in(claims, state.clock())
        if flow.again and sign_in.authenticated_at < flow.started_at - LEEWAY_S:
            raise NotSignedIn(
                "the sign-in provider did not ask for the password again, or does not say so (claim auth_time)",
                hint="sign in by a link: headway token link",
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
        claims lack the role claim is only refused, because a faulty setting of the provider must not delete people."""
        subject = self.subject(str(claims["sub"]))
        known = await state.store.people.by_subject(subject)
        try:
            role = self.role_from_claims(claims)
        except NotAllowed:
            if known is not None and self.settings.role_claim in claims:
                with contextlib.suppress(Conflict):  # the last admin stays
                    await delete_person(state, known.name)
                    await state.store.audit.record(known.name, "person.remove", known.name, {"by": "sign-in provider"})
            raise
        user = self.linux_user_from_claims(claims)
        if known is None:
            name = _name(claims)
            try:
                known = await _added(state, name, subject, role, user)
            except Conflict:
                name = f"{name[:50]}-{hashlib.sha256(subject.encode()).hexdigest()[:8]}"
                known = await _added(state, name, subject, role, user)
            await state.store.audit.record(
                known.name, "person.add", known.name, {"by": "sign-in provider", "role": known.role}
            )
        role_and_user = (role or known.role, known.user if user is None else user)
        if role_and_user != (known.role, known.user):
            check = _free(known.name, role_and_user[1])
            known = await state.store.people.change(
                known.name, role=role_and_user[0], user=role_and_user[1], check=check
            )
            await state.store.audit.record(
                known.name, "person.change", known.name, {"by": "sign-in provider", "role": known.role}
            )
        teams = self.teams_from_claims(claims)
        if teams != known.provider_teams:
            await state.store.people.set_provider_teams(known.name, teams)
            await state.store.audit.record(
                known.name, "person.teams", known.name, {"by": "sign-in provider", "teams": list(teams)}
            )
            known = replace(known, provider_teams=teams)
        return known

    def subject(self, sub: str) -> str:
        """Returns the subject by which the store knows the person with this id at the provider."""
        return f"{self.settings.issuer} {sub}"[:500]

    def role_from_claims(self, claims: Mapping[str, Any]) -> Role | None:
        """Returns the role for the first of the settings' values that the role claim contains, or None if the settings
        name no role claim. Raises NotAllowed for a person with none of the values."""
        if not self.settings.role_claim:
            return None
        if self.settings.role_claim not in claims:
            raise NotAllowed(
                f"the sign-in provider sent no claim {self.settings.role_claim}",
                hint="ask an admin of Headway, and of the provider: HEADWAY_OIDC_ROLE_CLAIM and HEADWAY_OIDC_SCOPES",
            )
        words = _words(claims[self.settings.role_claim])
        for word, role in self.settings.roles:
            if word in words:
                return role
        raise NotAllowed("your account at the sign-in provider has no role here", hint="ask an admin of Headway")

    def teams_from_claims(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the teams for all of the settings' values that the team claim contains; () without the claim."""
        words = _words(claims.get(self.settings.team_claim)) if self.settings.team_claim else frozenset()
        return tuple(sorted({team for word, team in self.settings.teams if word in words}))

    def linux_user_from_claims(self, claims: Mapping[str, Any]) -> str | None:
        """Returns the Linux user from the settings' claim: "" if the claim has no valid user name, None if the settings
        name no claim."""
        if not self.settings.user_claim:
            return None
        claim = claims.get(self.settings.user_claim)
        return claim if isinstance(claim, str) and claim and not user_name_fault(claim) else ""

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
                self._about, self._keys, self._read_at = about, None, time.monotonic()
        return self._about

    async def _keyset(self, *, fresh: bool = False) -> KeySet:
        from joserfc.jwk import KeySet

        recent = time.monotonic() - self._keys_read_at < _KEYS_LEAST_S  # forged tokens must not flood the provider
        if self._keys is None or (fresh and not recent):
            found: Any = await self._get(str((await self._description())["jwks_uri"]))
            self._keys, self._keys_read_at = KeySet.import_key_set(found), time.monotonic()
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
    return Unreachable(f"the sign-in provider {settings.issuer} can't be used: {reason}", hint=_HINT)


def _words(claim: Any) -> frozenset[str]:
    """Returns the values of a claim that is a list, or a text with spaces between them; none for another type."""
    words = claim if isinstance(claim, list) else claim.split() if isinstance(claim, str) else ()
    return frozenset(word for word in words if isinstance(word, str))


def _sign_in(claims: Mapping[str, Any], now: float) -> SignIn:
    """Returns when the provider last asked for the password, and its session. `now`: unix seconds of the server's clock."""
    at, session = claims.get("auth_time"), claims.get("sid")
    age_s = time.time() - at if isinstance(at, int | float) and not isinstance(at, bool) else None
    authenticated_at = 0.0 if age_s is None else now - max(0.0, age_s)
    return SignIn(authenticated_at, session[:255] if isinstance(session, str) else "")


def _name(claims: Mapping[str, Any]) -> str:
    """Returns the name for a new person. If two people have the same name, the caller adds a hash of the subject."""
    for claim in ("preferred_username", "email", "sub"):
        value = claims.get(claim)
        if isinstance(value, str) and value.isprintable():
            name = value.strip().replace("/", "-")[:64]
            if name.strip(".-"):  # "." and ".." are not possible in an address
                return name
    return "person"


async def _added(state: AppState, name: str, subject: str, role: Role | None, user: str | None) -> Person:
    return await state.store.people.add_from_provider(
        name, subject, role=role or Role.VIEWER, user=user or "", check=_free(name, user)
    )


def _free(name: str, user: str | None) -> Callable[[Sequence[Person]], None]:
    """Returns a check that raises NotAllowed if another person already has this Linux user: two people must not act as
    one."""

    def check(people: Sequence[Person]) -> None:
        try:
            require_unused_user(name, user or "")(people)
        except Refused as error:
            raise NotAllowed(error.message, hint="ask an admin to merge the two people") from None

    return check
