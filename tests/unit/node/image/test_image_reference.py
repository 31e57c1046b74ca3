"""References of images."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

D = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "name", "user"),
    [
        ("ubuntu", "docker://docker.io/library/ubuntu:latest", ""),
        ("ubuntu:24.04", "docker://docker.io/library/ubuntu:24.04", ""),
        ("nvidia/cuda:12", "docker://docker.io/nvidia/cuda:12", ""),
        ("nvcr.io#nvidia/pytorch:25.05-py3", "docker://nvcr.io/nvidia/pytorch:25.05-py3", ""),
        ("docker://nvcr.io#nvidia/pytorch:1", "docker://nvcr.io/nvidia/pytorch:1", ""),
        ("docker://host:5000/team/x:1", "docker://host:5000/team/x:1", ""),
        ("host:5000#x", "docker://host:5000/x:latest", ""),
        ("$oauthtoken@nvcr.io#a/b:1", "docker://nvcr.io/a/b:1", "$oauthtoken"),
        ("me@team/x:1", "docker://docker.io/team/x:1", "me"),
        (f"ghcr.io/a/b@{D}", f"docker://ghcr.io/a/b@{D}", ""),
        (f"ghcr.io#a/b:tag@{D}", f"docker://ghcr.io/a/b@{D}", ""),
        (f"me@ghcr.io#a/b@{D}", f"docker://ghcr.io/a/b@{D}", "me"),
    ],
)
def test_image_references_are_parsed_into_name_and_user(
    runtime: dict[str, ModuleType], text: str, name: str, user: str
) -> None:
    found = runtime["image_reference"].parse(text)
    assert (found.name, found.user) == (name, user)


def test_image_paths_are_not_taken_for_registries(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parse = runtime["image_reference"].parse
    assert parse("/x/y.sqsh").path == "/x/y.sqsh"
    assert parse("./y.sqsh").path == parse("y.sqsh").path == str(tmp_path / "y.sqsh")
    assert (parse("oci:/x/y:t").path, parse("oci:/x/y:t").tag) == ("/x/y", "t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "UPPER",
        "docker://",
        "a#b#c",
        "host#",
        "x:t:u",
        "x:/etc",
        "a/../b",
        "-x",
        "x\n",
        f"a@{D}0",
        "s3://b",
        "a@sha256:1",
    ],
)
def test_invalid_image_references_are_refused(runtime: dict[str, ModuleType], text: str) -> None:
    with pytest.raises(runtime["messages"].Failed, match="--container-image"):
        runtime["image_reference"].parse(text)
