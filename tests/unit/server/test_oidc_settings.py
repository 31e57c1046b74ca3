"""The OpenID provider for sign-in is read from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import Refused
from headway.server.oidc_settings import read_oidc_settings


def test_oidc_settings_are_read_from_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    found = read_oidc_settings({
        "HEADWAY_OIDC_ISSUER": "https://id.example.org/realm", "HEADWAY_OIDC_CLIENT_ID": "headway",
        "HEADWAY_OIDC_CLIENT_SECRET_FILE": str(tmp_path / "secret"), "HEADWAY_OIDC_ROLE_CLAIM": "groups",
        "HEADWAY_OIDC_ROLES": "cn=hpc=admin,staff=member",
        "HEADWAY_OIDC_TEAM_CLAIM": "groups", "HEADWAY_OIDC_TEAMS": "ml=red, vision=lab/blue",
    })  # fmt: skip
    assert found
    assert (found.client_secret, found.roles) == ("s3cret", (("cn=hpc", "admin"), ("staff", "member")))
    assert found.teams == (("ml", "red"), ("vision", "lab/blue"))
    assert (found.acr, found.amr, found.only) == ((), (), False)
    assert "s3cret" not in repr(found)
    strong = read_oidc_settings({
        "HEADWAY_OIDC_ISSUER": "https://id.example.org/realm", "HEADWAY_OIDC_CLIENT_ID": "headway",
        "HEADWAY_OIDC_ACR": "phr, phrh", "HEADWAY_OIDC_AMR": "mfa", "HEADWAY_OIDC_ONLY": "1",
    })  # fmt: skip
    assert strong
    assert (strong.acr, strong.amr, strong.only) == (("phr", "phrh"), ("mfa",), True)
    assert read_oidc_settings({}) is None


def test_refuses_invalid_oidc_settings_and_says_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    provider = {"HEADWAY_OIDC_ISSUER": "https://id.example.org", "HEADWAY_OIDC_CLIENT_ID": "x"}
    for env, words in (
        ({"HEADWAY_OIDC_ISSUER": "http://id.example.org"}, "not an https address"),
        ({"HEADWAY_OIDC_ISSUER": "https://id.example.org"}, "HEADWAY_OIDC_CLIENT_ID"),
        ({**provider, "HEADWAY_OIDC_ROLES": "staff=boss"}, "invalid entry"),
        ({**provider, "HEADWAY_OIDC_ROLES": "staff=member"}, "without HEADWAY_OIDC_ROLE_CLAIM"),
        ({**provider, "HEADWAY_OIDC_ROLE_CLAIM": "groups"}, "without HEADWAY_OIDC_ROLES"),
        ({**provider, "HEADWAY_OIDC_TEAMS": "ml=red"}, "without HEADWAY_OIDC_TEAM_CLAIM"),
        ({**provider, "HEADWAY_OIDC_TEAM_CLAIM": "groups"}, "without HEADWAY_OIDC_TEAMS"),
        ({**provider, "HEADWAY_OIDC_TEAMS": "ml=lab/red/x", "HEADWAY_OIDC_TEAM_CLAIM": "g"}, "invalid entry"),
        ({**provider, "HEADWAY_OIDC_ONLY": "yes"}, "neither 0 nor 1"),
        ({"HEADWAY_OIDC_ONLY": "1"}, "without HEADWAY_OIDC_ISSUER"),
        ({**provider, "HEADWAY_OIDC_CLIENT_SECRET_FILE": "/nowhere"}, "can't be read"),
        ({**provider, "HEADWAY_OIDC_CLIENT_SECRET_FILE": str(empty)}, "is empty"),
    ):
        with pytest.raises(Refused, match=words) as refused:
            read_oidc_settings(env)
        assert refused.value.hint
