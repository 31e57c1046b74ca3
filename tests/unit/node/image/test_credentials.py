"""Passwords of registries."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def find(runtime: dict[str, ModuleType], home: Path, host: str, user: str = "", **environment: str) -> Any:
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    path = runtime["credentials"].find(str(folder), str(home), host, user, environment)
    return path and json.loads(Path(path).read_text())


def write(home: Path, name: str, text: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_credentials_file_that_lists_the_registry_is_used(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    assert find(runtime, tmp_path, "r.test") == ""
    write(tmp_path, ".config/containers/auth.json", '{"auths": {"r.test/team": {"auth": "b25l"}}}')
    write(tmp_path, ".docker/config.json", '{"auths": {"https://other.test": {"auth": "dHdv"}}}')
    assert "r.test/team" in find(runtime, tmp_path, "r.test")["auths"]
    assert "https://other.test" in find(runtime, tmp_path, "other.test")["auths"]


def test_enroot_credentials_are_converted_to_a_private_auth_file(
    runtime: dict[str, ModuleType], tmp_path: Path
) -> None:
    rows = "machine r.test login one password 1\nmachine r.test login $oauthtoken password $KEY\n# machine x login y\n"
    write(tmp_path, ".config/enroot/.credentials", rows)
    assert find(runtime, tmp_path, "r.test")["auths"]["r.test"]["auth"] == "b25lOjE="
    made = tmp_path / "work" / "auth.json"
    assert made.stat().st_mode & 0o777 == 0o600
    made.unlink()
    told = find(runtime, tmp_path, "r.test", "$oauthtoken", KEY="k")["auths"]["r.test"]["auth"]
    assert told == "JG9hdXRodG9rZW46aw=="  # base64 of "$oauthtoken:k": that is a name, and no variable that is set


@pytest.mark.parametrize(
    ("row", "login"),
    [
        ("machine nvcr.io login $oauthtoken password nvapi-SECRET", "$oauthtoken:nvapi-SECRET"),
        ("machine nvcr.io login bob password pa#ss'wo\\rd # of bob", "bob:pa#ss'wo\\rd"),
        ("machine nvcr.io login bob password $ecret", "bob:$ecret"),
        ('machine nvcr.io login bob password "p w"', "bob:p w"),
        ("machine nvcr.io login bob password 'it\"s", "bob:'it\"s"),
        ("machine nvcr.io\n  login bob\n  password ${KEY}", "bob:k"),
    ],
)
def test_enroot_passwords_are_read_literally(
    runtime: dict[str, ModuleType], tmp_path: Path, row: str, login: str
) -> None:
    write(tmp_path, ".config/enroot/.credentials", row + "\n")
    told = find(runtime, tmp_path, "nvcr.io", KEY="k")["auths"]["nvcr.io"]["auth"]
    assert base64.b64decode(told).decode() == login


def test_damaged_auth_file_is_named_without_its_content(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    path = write(tmp_path, ".config/containers/auth.json", '{"auths": {"r.test": {"auth": "geheim"')
    with pytest.raises(runtime["messages"].Failed, match=r"auth\.json is not JSON") as failed:
        find(runtime, tmp_path, "r.test")
    assert "geheim" not in str(failed.value)
    assert str(path) in str(failed.value)
