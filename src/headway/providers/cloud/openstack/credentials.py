"""The credentials of the server's user at an OpenStack cloud: from the variables OS_*, or from the file clouds.yaml, as the
command `openstack` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.providers.cloud.refusals import AuthFailed

_HINT = "set OS_CLOUD and write clouds.yaml, or set OS_AUTH_URL and the other variables of the cloud's openrc file"
_FOLDERS = ("~/.config/openstack", "/etc/openstack")
# The names in clouds.yaml; the variables are the same in capitals, after OS_.
_AUTH = (
    "auth_url", "username", "user_id", "password", "user_domain_name", "user_domain_id", "project_name", "project_id",
    "project_domain_name", "project_domain_id", "application_credential_id", "application_credential_name",
    "application_credential_secret",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where to sign in, and with what."""

    auth_url: str  # of Keystone, with /v3
    body: Mapping[str, Any] = field(repr=False)  # of the request for a token; it holds a secret
    interface: str = "public"  # of the endpoints
    ca_file: str = ""  # certificates that are trusted; "" = those of the system


def read_credentials(environment: Mapping[str, str]) -> Credentials:
    """Returns the credentials. Raises AuthFailed if there are none or a part is missing."""
    name = environment.get("OS_CLOUD", "")
    cloud = _read_cloud(name, environment) if name else {}
    said = dict(cloud.get("auth") or {})
    for key in _AUTH:
        if value := environment.get(f"OS_{key.upper()}"):
            said.setdefault(key, value)
    if not said.get("auth_url"):
        raise AuthFailed(f"the server has no credentials for OpenStack: {_HINT}")
    url = str(said["auth_url"]).rstrip("/")
    return Credentials(
        auth_url=url if url.endswith("/v3") else f"{url.removesuffix('/v2.0')}/v3",
        body={"auth": _auth_of(said)},
        interface=str(cloud.get("interface") or environment.get("OS_INTERFACE") or "public").removesuffix("URL"),
        ca_file=str(cloud.get("cacert") or environment.get("OS_CACERT") or ""),
    )


def _read_cloud(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry of clouds.yaml, with the secrets of secure.yaml next to it."""
    import yaml

    given = environment.get("OS_CLIENT_CONFIG_FILE")
    files = [Path(given)] if given else [Path(folder).expanduser() / "clouds.yaml" for folder in _FOLDERS]
    file = next((one for one in files if one.is_file()), None)
    if file is None:
        raise AuthFailed(f"OS_CLOUD is {name}, and there is no {' and no '.join(map(str, files))}")
    found: dict[str, Any] = {}
    for path in (file, file.with_name("secure.yaml")):
        try:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            entry = _mapping(_mapping(yaml.safe_load(text), "clouds"), name)
        except (OSError, ValueError, yaml.YAMLError) as error:
            # The text of a YAML error may show a line with a password.
            raise AuthFailed(f"{path} can't be read: {type(error).__name__}") from None
        found = {**found, **entry, "auth": {**_mapping(found, "auth"), **_mapping(entry, "auth")}}
    if not found["auth"]:
        raise AuthFailed(f"{file} has no cloud {name} with auth")
    return found


def _mapping(value: object, key: str) -> dict[str, Any]:
    """Returns the mapping under a key, {} if there is none. Raises ValueError if a person wrote something else there."""
    if value is None:
        return {}
    found = value.get(key) if isinstance(value, dict) else value
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{key} is no mapping")
    return found


def _auth_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `auth` of a request for a token of one project."""
    if secret := said.get("application_credential_secret"):
        credential: dict[str, Any] = {"secret": secret}
        if said.get("application_credential_id"):
            credential["id"] = said["application_credential_id"]
        else:
            credential |= {"name": _need(said, "application_credential_name"), "user": _user(said)}
        return {"identity": {"methods": ["application_credential"], "application_credential": credential}}
    user = {**_user(said), "password": _need(said, "password")}
    project: dict[str, Any] = {"id": said["project_id"]} if said.get("project_id") else {}
    if not project:
        project = {"name": _need(said, "project_name"), "domain": _domain(said, "project")}
    return {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": project},
    }


def _user(said: Mapping[str, Any]) -> dict[str, Any]:
    if said.get("user_id"):
        return {"id": said["user_id"]}
    return {"name": _need(said, "username"), "domain": _domain(said, "user")}


def _domain(said: Mapping[str, Any], of: str) -> dict[str, Any]:
    if said.get(f"{of}_domain_id"):
        return {"id": said[f"{of}_domain_id"]}
    return {"name": said.get(f"{of}_domain_name") or "Default"}


def _need(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    if not value:
        raise AuthFailed(f"the credentials for OpenStack lack {key} (OS_{key.upper()}): {_HINT}")
    return str(value)
