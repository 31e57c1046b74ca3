"""Credentials from the environment and from clouds.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.providers.cloud.openstack.credentials import read_credentials
from headway.providers.cloud.refusals import AuthFailed

OPENRC = {
    "OS_AUTH_URL": "https://keystone.example.org:5000/v3/",
    "OS_USERNAME": "ann",
    "OS_PASSWORD": "hidden",
    "OS_PROJECT_NAME": "lab",
    "OS_USER_DOMAIN_NAME": "people",
}


def auth(environment: dict[str, str]) -> Any:
    return read_credentials(environment).body["auth"]


def test_variables_of_openrc() -> None:
    found = read_credentials(OPENRC)
    assert (found.auth_url, found.interface) == ("https://keystone.example.org:5000/v3", "public")
    assert auth(OPENRC)["identity"]["password"]["user"] == {
        "name": "ann", "domain": {"name": "people"}, "password": "hidden"
    }  # fmt: skip
    assert auth(OPENRC)["scope"] == {"project": {"name": "lab", "domain": {"name": "Default"}}}
    assert auth({**OPENRC, "OS_PROJECT_ID": "7"})["scope"] == {"project": {"id": "7"}}
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    ("url", "wanted"), [("http://k:5000", "http://k:5000/v3"), ("http://k/identity/v2.0", "http://k/identity/v3")]
)
def test_url_without_version(url: str, wanted: str) -> None:
    assert read_credentials({**OPENRC, "OS_AUTH_URL": url}).auth_url == wanted


def test_application_credential_needs_no_project() -> None:
    found = auth(
        {"OS_AUTH_URL": "http://k", "OS_APPLICATION_CREDENTIAL_ID": "1", "OS_APPLICATION_CREDENTIAL_SECRET": "s"}
    )
    assert found == {
        "identity": {"methods": ["application_credential"], "application_credential": {"id": "1", "secret": "s"}}
    }


@pytest.mark.parametrize("left_out", ["OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"])
def test_missing_variable_is_named(left_out: str) -> None:
    some = {key: value for key, value in OPENRC.items() if key != left_out}
    with pytest.raises(AuthFailed, match=rf"lack {left_out.removeprefix('OS_').lower()} \({left_out}\)"):
        read_credentials(some)


def test_clouds_yaml_and_its_secrets(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    environment = {"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": str(file)}
    with pytest.raises(AuthFailed, match="OS_CLOUD is lab, and there is no"):
        read_credentials(environment)
    file.write_text(
        "clouds: {lab: {interface: internal, cacert: /ca.pem, auth: {auth_url: http://k, user_id: u, project_id: p}}}"
    )
    (tmp_path / "secure.yaml").write_text("clouds: {lab: {auth: {password: hidden}}}")
    found = read_credentials(environment)
    assert (found.interface, found.ca_file) == ("internal", "/ca.pem")
    assert found.body["auth"]["identity"]["password"]["user"] == {"id": "u", "password": "hidden"}
    with pytest.raises(AuthFailed, match="has no cloud other"):
        read_credentials({**environment, "OS_CLOUD": "other"})


@pytest.mark.parametrize("text", ["clouds: [1]", "- 1", "clouds: {lab: {auth: {password: 'x"])
def test_broken_file_is_named_without_its_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text(text)
    with pytest.raises(AuthFailed) as refused:
        read_credentials({"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": str(file)})
    assert str(file) in str(refused.value)
    assert "password" not in str(refused.value)
