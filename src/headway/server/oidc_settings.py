"""The OpenID provider for sign-in, read from environment variables.

HEADWAY_OIDC_ISSUER      an OpenID provider for sign-in, exactly as it names itself
HEADWAY_OIDC_CLIENT_ID   the client id of this server at the provider
HEADWAY_OIDC_CLIENT_SECRET_FILE  a file with the client secret; unset = a public client
HEADWAY_OIDC_ROLE_CLAIM  the claim that holds people's roles; unset = people are viewers until an admin changes that
HEADWAY_OIDC_ROLES       values of that claim and the role for each, the first match counts: hpc-admins=admin,staff=member
HEADWAY_OIDC_USER_CLAIM  the claim that holds the Linux user name; unset = an admin sets it
HEADWAY_OIDC_SCOPES      scopes to request besides openid, profile and email, separated by ","
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from headway.domain.role import Role
from headway.errors import Refused
from headway.server.listen_settings import LOOPBACK
from headway.services.server_settings import Oidc


def read_oidc_settings(env: Mapping[str, str]) -> Oidc | None:
    """Returns the provider, or None if none is set. Raises Refused for invalid settings."""
    issuer = env.get("HEADWAY_OIDC_ISSUER", "")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise Refused(
            f"HEADWAY_OIDC_ISSUER is not an https address: {issuer[:80]!r}",
            hint="give the issuer exactly as the provider writes it, for example https://id.example.org/realms/hpc",
        )
    client = env.get("HEADWAY_OIDC_CLIENT_ID", "")
    if not client:
        raise Refused("HEADWAY_OIDC_ISSUER is set without HEADWAY_OIDC_CLIENT_ID", hint="get it from the provider")
    role_claim, roles = env.get("HEADWAY_OIDC_ROLE_CLAIM", ""), _roles(env.get("HEADWAY_OIDC_ROLES", ""))
    if bool(role_claim) != bool(roles):
        missing, there = ("ROLES", "ROLE_CLAIM") if role_claim else ("ROLE_CLAIM", "ROLES")
        raise Refused(
            f"HEADWAY_OIDC_{there} is set without HEADWAY_OIDC_{missing}",
            hint="set both, or none: then people are viewers until an admin changes that",
        )
    return Oidc(
        issuer,
        client,
        _secret(env.get("HEADWAY_OIDC_CLIENT_SECRET_FILE", "")),
        role_claim=role_claim,
        roles=roles,
        user_claim=env.get("HEADWAY_OIDC_USER_CLAIM", ""),
        scopes=tuple(word.strip() for word in env.get("HEADWAY_OIDC_SCOPES", "").split(",") if word.strip()),
    )


def _secret(file: str) -> str:
    if not file:
        return ""
    try:
        text = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Refused(
            f"HEADWAY_OIDC_CLIENT_SECRET_FILE can't be read: {why}",
            hint=f"make {file} a file with the client secret, readable by the server's user",
        ) from None
    if not text:
        raise Refused(
            f"HEADWAY_OIDC_CLIENT_SECRET_FILE is empty: {file}",
            hint="write the client secret into it, or unset the variable for a public client",
        )
    return text


def _roles(text: str) -> tuple[tuple[str, Role], ...]:
    found = []
    for pair in filter(None, (word.strip() for word in text.split(","))):
        word, _, role = pair.rpartition("=")
        if not word or role not in list(Role):
            raise Refused(
                f"HEADWAY_OIDC_ROLES has an invalid entry: {pair[:60]!r}",
                hint=f"give VALUE=ROLE pairs, a role being one of {', '.join(Role)}: hpc-admins=admin,staff=member",
            )
        found.append((word, Role(role)))
    return tuple(found)
