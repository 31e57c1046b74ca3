"""What the claims of the OpenID provider give a person: a name, a role, teams and a Linux user. The rules are in the
server's settings (`services.server_settings.Oidc`); groups that come by SCIM use them too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.domain.access.role import Role
from headway.errors import NotAllowed, NotSignedIn
from headway.services.server_settings import Oidc
from headway.validation.syntax_rules import user_name_fault

Claims = Mapping[str, Any]


def require_links_and_tokens(oidc: Oidc | None) -> None:
    """Raises NotAllowed where only the OpenID provider signs browsers in."""
    if oidc is not None and oidc.only:
        raise NotAllowed(
            f"this server's pages take only sign-ins of {oidc.host}", hint="sign in there, from the page /signin"
        )


def subject_of(oidc: Oidc, sub: str) -> str:
    """Returns the subject by which the store knows the person with this id at the provider."""
    return f"{oidc.issuer} {sub}"[:500]


def role_from_claims(oidc: Oidc, claims: Claims) -> Role | None:
    """Returns the role for the first of the settings' values that the role claim contains, or None if the settings name no
    role claim. Raises NotAllowed for a person with none of the values."""
    if not oidc.role_claim:
        return None
    if oidc.role_claim not in claims:
        raise NotAllowed(
            f"the sign-in provider sent no claim {oidc.role_claim}",
            hint="ask an admin of Headway, and of the provider: HEADWAY_OIDC_ROLE_CLAIM and HEADWAY_OIDC_SCOPES",
        )
    words = _words(claims[oidc.role_claim])
    for word, role in oidc.roles:
        if word in words:
            return role
    raise NotAllowed("your account at the sign-in provider has no role here", hint="ask an admin of Headway")


def require_strength(oidc: Oidc, claims: Claims) -> None:
    """Raises NotSignedIn unless the ID token says that the person signed in as the settings ask, for example with a second
    factor (claims acr and amr, RFC 8176)."""
    for name, permitted in (("acr", oidc.acr), ("amr", oidc.amr)):
        if permitted and not _words(claims.get(name)).intersection(permitted):
            said = " ".join(sorted(_words(claims.get(name))))[:100] or "(none)"
            raise NotSignedIn(
                f"this sign-in is too weak: its claim {name} is {said}, not {' or '.join(permitted)}",
                hint="sign in at the provider with a second factor, or ask an admin of Headway",
            )


def teams_from_claims(oidc: Oidc, claims: Claims) -> tuple[str, ...]:
    """Returns the teams for all of the settings' values that the team claim contains; () without the claim."""
    words = _words(claims.get(oidc.team_claim)) if oidc.team_claim else frozenset()
    return tuple(sorted({team for word, team in oidc.teams if word in words}))


def linux_user_from_claims(oidc: Oidc, claims: Claims) -> str | None:
    """Returns the Linux user from the settings' claim: "" if the claim has no valid user name, None if the settings name no
    claim."""
    if not oidc.user_claim:
        return None
    claim = claims.get(oidc.user_claim)
    return claim if isinstance(claim, str) and claim and not user_name_fault(claim) else ""


def name_from_claims(claims: Claims) -> str:
    """Returns the name for a new person. Another person may have it."""
    for claim in ("preferred_username", "email", "sub"):
        value = claims.get(claim)
        if isinstance(value, str) and value.isprintable():
            name = value.strip().replace("/", "-")[:64]
            if name.strip(".-"):  # "." and ".." are not possible in an address
                return name
    return "person"


def _words(claim: Any) -> frozenset[str]:
    """Returns the values of a claim that is a list, or a text with spaces between them; none for another type."""
    words = claim if isinstance(claim, list) else claim.split() if isinstance(claim, str) else ()
    return frozenset(word for word in words if isinstance(word, str))
