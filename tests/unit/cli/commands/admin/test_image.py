"""image lists and removes node images."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headway.images.local_images import DebianRelease, ImageInfo
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_image_ls_marks_outdated_and_unused_images(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = (DebianRelease("trixie", "a" * 64, "2026-11-26T08:00:00Z"),)
    used = ImageInfo(
        "debian13", "localhost/x:1", "id", "abc", 1700, "2026-01-01", "24.11", current=False, machines=5, debian=debian
    )
    unused = replace(used, tag="localhost/x:2", machines=0)

    async def found() -> tuple[ImageInfo, ...]:
        return (used, unused)

    monkeypatch.setattr("headway.images.local_images.list_images", found)
    first, second = cli("image", "ls").out.splitlines()[1:]
    assert ("outdated" in first, "unused" in second) == (True, True)
    rows = json.loads(cli("image", "ls", "-o", "json").out)
    assert [(row["current"], row["machines"]) for row in rows] == [(False, 5), (False, 0)]
    assert rows[0]["debian"] == [{"suite": "trixie", "sha256": "a" * 64, "date": "2026-11-26T08:00:00Z"}]


def test_image_rm_requires_the_unused_option_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def removed() -> tuple[str, ...]:
        return ("localhost/x:2",)

    monkeypatch.setattr("headway.images.local_images.remove_unused_images", removed)
    assert cli("image", "rm", "--unused").out == "removed localhost/x:2\n"
    for words in ((), ("debian13", "--unused")):
        refused = cli("image", "rm", *words)
        assert (refused.code, "--unused" in refused.err) == (2, True)


def test_image_build_with_update_asks_for_todays_packages(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    made = ImageInfo("debian13", "localhost/x:1-p2", "id", "abc", 1700, "2026-01-01", "24.11")

    async def build(name: str, report: object, *, update: bool) -> ImageInfo:
        asked.append(update)
        return made

    async def found() -> tuple[ImageInfo, ...]:
        return (made,)

    monkeypatch.setattr("headway.images.build.build_image", build)
    monkeypatch.setattr("headway.images.local_images.list_images", found)
    assert cli("image", "build").code == 0
    assert cli("image", "build", "--update").out == "localhost/x:1-p2 is ready: Slurm 24.11, 1700 MiB\n"
    assert asked == [False, True]
