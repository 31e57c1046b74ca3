"""image lists and removes node images."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headway.images.local_images import ImageInfo
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_image_ls_marks_outdated_and_unused_images(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    used = ImageInfo("debian13", "localhost/x:1", "id", "abc", 1700, "2026-01-01", "24.11", current=False, machines=5)
    unused = replace(used, tag="localhost/x:2", machines=0)

    async def found() -> tuple[ImageInfo, ...]:
        return (used, unused)

    monkeypatch.setattr("headway.images.local_images.list_images", found)
    first, second = cli("image", "ls").out.splitlines()[1:]
    assert ("old inputs" in first, "unused" in second) == (True, True)
    rows = json.loads(cli("image", "ls", "-o", "json").out)
    assert [(row["current"], row["machines"]) for row in rows] == [(False, 5), (False, 0)]


def test_image_rm_requires_the_unused_option_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def removed() -> tuple[str, ...]:
        return ("localhost/x:2",)

    monkeypatch.setattr("headway.images.local_images.remove_unused_images", removed)
    assert cli("image", "rm", "--unused").out == "removed localhost/x:2\n"
    for words in ((), ("debian13", "--unused")):
        refused = cli("image", "rm", *words)
        assert (refused.code, "--unused" in refused.err) == (2, True)
