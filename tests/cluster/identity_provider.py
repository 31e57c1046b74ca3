"""An identity provider that sends people and groups to a lab's server by SCIM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from tests.cluster.lab import Lab

from headway.schemas.access.scim import HEADWAY_USER_SCHEMA, SCIM_JSON, USER_SCHEMA

# Of the server; HEADWAY_OIDC_TEAMS says which group is which team. The group staff makes members.
SETTINGS = {
    "HEADWAY_OIDC_ISSUER": "https://id.example.org",
    "HEADWAY_OIDC_CLIENT_ID": "headway",
    "HEADWAY_OIDC_ROLE_CLAIM": "groups",
    "HEADWAY_OIDC_ROLES": "staff=member",
    "HEADWAY_OIDC_TEAM_CLAIM": "groups",
    "HEADWAY_OIDC_USER_CLAIM": "linux_user",
}


@contextmanager
def identity_provider(lab: Lab) -> Iterator[httpx.Client]:
    """Gives the provider's client, with a token of its own."""
    token = lab.cli("token", "create", "scim", "--role", "admin", "--scope", "scim", "--no-expiry", "-q").out.strip()
    headers = {"authorization": f"Bearer {token}", "content-type": SCIM_JSON}
    with httpx.Client(base_url=f"{lab.client.url}/scim/v2", headers=headers, timeout=30) as made:
        yield made


def sent(answer: httpx.Response) -> dict[str, Any]:
    """Returns the answer's content."""
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def add_person(idp: httpx.Client, user: str, *groups: str) -> str:
    """Adds a person with this Linux user to groups; returns the id of their SCIM user."""
    body = {"schemas": [USER_SCHEMA], "userName": f"{user}@example.org", "externalId": user}
    made: str = sent(idp.post("/Users", json={**body, HEADWAY_USER_SCHEMA: {"linuxUser": user}}))["id"]
    for group in groups:
        change_member(idp, group, made, "add")
    return made


def change_member(idp: httpx.Client, group: str, user: str, how: str) -> None:
    """Adds a user to a group, or removes them ("add", "remove"), as Entra ID does."""
    found = sent(idp.get("/Groups", params={"filter": f'displayName eq "{group}"'}))["Resources"]
    known = found[0]["id"] if found else sent(idp.post("/Groups", json={"displayName": group}))["id"]
    operation = {"op": how, "path": "members", "value": [{"value": user}]}
    answer = idp.patch(f"/Groups/{known}", json={"Operations": [operation]})
    assert answer.is_success, answer.text
