"""The OpenID provider for sign-in, read from environment variables.

HEADWAY_OIDC_ISSUER      an OpenID provider for sign-in, exactly as it names itself
HEADWAY_OIDC_CLIENT_ID   the client id of this server at the provider
HEADWAY_OIDC_CLIENT_SECRET_FILE  a file with the client secret; unset = a public client
HEADWAY_OIDC_ROLE_CLAIM  the claim that holds people's roles; unset = people are viewers until an admin changes that
HEADWAY_OIDC_ROLES       values of that claim and the role for each, the first match counts: hpc-admins=admin,staff=member
HEADWAY_OIDC_TEAM_CLAIM  the claim that holds people's groups; unset = teams have only the users of the cluster file
HEADWAY_OIDC_TEAMS       values of that claim and the team for each, in all clusters or in one: ml=red,vision=lab/blue
HEADWAY_OIDC_USER_CLAIM  the claim that holds the Linux user name; unset = an admin sets it
HEADWAY_OIDC_SUBJECT_CLAIM  the claim that holds the person's id, which people can't choose; unset = sub; Entra ID: oid
HEADWAY_OIDC_SCOPES      scopes to request besides openid, profile and email, separated by ","
HEADWAY_OIDC_ACR         values of the claim acr, separated by ",": a sign-in must have one of them; unset = any
HEADWAY_OIDC_AMR         values of the claim amr, such as mfa: a sign-in must have one of them; unset = any
HEADWAY_OIDC_ONLY        1: browsers sign in by the provider only, neither by links nor by tokens
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from headway.domain.access.role import Role
from headway.errors import Refused
from headway.services.server_settings import Oidc
from headway.validation.hosts import is_loopback

_TEAM = re.compile(r"([a-z][a-z0-9-]*/)?[a-z0-9][a-z0-9_.-]*")


def read_oidc_settings(env: Mapping[str, str]) -> Oidc | None:
    """Returns the provider, or None if none is set. Raises Refused for invalid settings."""
    issuer = env.get("HEADWAY_OIDC_ISSUER", "")
    if not issuer:
        if _switch(env, "HEADWAY_OIDC_ONLY"):
            raise Refused(
                "HEADWAY_OIDC_ONLY is set without HEADWAY_OIDC_ISSUER",
                hint="set both: without a provider no browser could sign in",
            )
        return None
    parts = urlsplit(issuer)
    if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname))):
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
    team_claim, teams = env.get("HEADWAY_OIDC_TEAM_CLAIM", ""), _teams(env.get("HEADWAY_OIDC_TEAMS", ""))
    if bool(team_claim) != bool(teams):
        missing, there = ("TEAMS", "TEAM_CLAIM") if team_claim else ("TEAM_CLAIM", "TEAMS")
        raise Refused(
            f"HEADWAY_OIDC_{there} is set without HEADWAY_OIDC_{missing}",
            hint="set both, or none: then teams have only the users of the cluster file",
        )
    return Oidc(
        issuer,
        client,
        _secret(env.get("HEADWAY_OIDC_CLIENT_SECRET_FILE", "")),
        role_claim=role_claim,
        roles=roles,
        team_claim=team_claim,
        teams=teams,
        subject_claim=env.get("HEADWAY_OIDC_SUBJECT_CLAIM", "") or "sub",
        user_claim=env.get("HEADWAY_OIDC_USER_CLAIM", ""),
        scopes=_words(env.get("HEADWAY_OIDC_SCOPES", "")),
        acr=_words(env.get("HEADWAY_OIDC_ACR", "")),
        amr=_words(env.get("HEADWAY_OIDC_AMR", "")),
        only=_switch(env, "HEADWAY_OIDC_ONLY"),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _switch(env: Mapping[str, str], name: str) -> bool:
    if (text := env.get(name, "")) not in ("", "0", "1"):
        raise Refused(f"{name} is neither 0 nor 1: {text[:20]!r}", hint="set it to 1, or unset it")
    return text == "1"


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


def _teams(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in filter(None, (word.strip() for word in text.split(","))):
        word, _, team = pair.rpartition("=")
        if not word or not _TEAM.fullmatch(team):
            raise Refused(
                f"HEADWAY_OIDC_TEAMS has an invalid entry: {pair[:80]!r}",
                hint="give VALUE=TEAM or VALUE=CLUSTER/TEAM pairs: ml=red,vision=lab/blue",
            )
        found.append((word, team))
    return tuple(found)
