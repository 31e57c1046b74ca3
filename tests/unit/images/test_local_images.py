"""Node images on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.images import local_images, recipe
from headway.transport.process import CommandResult


class FakePodman:
    """Keeps images as podman does: one that a container or a later image rests on can't be removed."""

    def __init__(self) -> None:
        self.images: list[dict[str, Any]] = []

    def add(self, tag: str, *, parent: str = "", machines: int = 0, **labels: str) -> None:
        item = {"Id": f"id of {tag}", "Names": [tag], "ParentId": f"id of {parent}", "Containers": machines}
        self.images.append({**item, "Labels": {"headway": "1", **{f"headway.{k}": v for k, v in labels.items()}}})

    async def run(self, argv: Sequence[str], *, timeout_s: float, check: bool = True) -> CommandResult:
        match list(argv):
            case ["podman", "images", "--filter", label, "--format", "json"]:
                key = label.removeprefix("label=")
                return CommandResult(tuple(argv), 0, json.dumps([i for i in self.images if key in i["Labels"]]), "", 0)
            case ["podman", "rmi", tag]:
                (one,) = [item for item in self.images if tag in item["Names"]]
                held = one["Containers"] or any(item["ParentId"] == one["Id"] for item in self.images)
                if not held:
                    self.images.remove(one)
                return CommandResult(tuple(argv), 2 if held else 0, "", "in use" if held else "", 0)
        raise AssertionError(f"unregistered call: {argv}")


async def test_removes_only_unused_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    podman = FakePodman()
    monkeypatch.setattr(local_images, "run_process", podman.run)
    monkeypatch.setattr(local_images, "host_lock_folder", lambda: tmp_path)
    base = f"{recipe.BASE_REPOSITORY}:debian13-{recipe.base_hash('debian13')}"
    podman.add(base, base="debian13")
    for old in ("held", "free"):
        podman.add(f"{recipe.BASE_REPOSITORY}:debian13-{old}", base="debian13")
    current = recipe.inputs_hash("debian13")
    for text, parent, machines in ((current, base, 0), ("used", "localhost/headway-base:debian13-held", 5),
                                   ("gone1", base, 0), ("gone2", "localhost/headway-base:debian13-free", 0)):  # fmt: skip
        tag = f"{recipe.REPOSITORY}:debian13-{text}"
        podman.add(tag, parent=parent, machines=machines, base="debian13", image="debian13", hash=text)
    podman.add("docker.test/other:1")
    assert await local_images.remove_unused_images() == (
        "localhost/headway-node:debian13-gone1",
        "localhost/headway-node:debian13-gone2",
        "localhost/headway-base:debian13-free",
    )
    assert [item["Names"][0].rpartition("-")[2] for item in podman.images[1:-1]] == ["held", current, "used"]
    assert await local_images.remove_unused_images() == ()


async def test_updated_image_is_the_current_one_although_its_inputs_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    podman, now = FakePodman(), recipe.inputs_hash("debian13")
    monkeypatch.setattr(local_images, "run_process", podman.run)
    local_images.clear_cache()
    release = f"trixie={'a' * 64}@2026-11-27T08:00:00Z,trixie-security={'b' * 64}@2026-11-27T09:00:00Z"
    for tag, built, packages in (
        (now, "2026-11-01T00:00:00+00:00", "p1"),
        (f"{now}-p2", "2026-11-27T10:00:00+00:00", "p2"),
    ):
        podman.add(
            f"{recipe.REPOSITORY}:debian13-{tag}", machines=2, image="debian13", hash=now, built=built, packages=packages,
            debian=release,
        )  # fmt: skip
    podman.add(f"{recipe.REPOSITORY}:debian12-x", image="debian12", hash="x", built="2026-11-28T00:00:00+00:00")
    found = await local_images.find_current_image("debian13")
    assert found is not None
    assert (found.id, found.packages) == (f"id of {recipe.REPOSITORY}:debian13-{now}-p2", "p2"), (
        "machines of p1 are outdated"
    )
    assert [info.current for info in await local_images.list_images()] == [False, True, False]
    assert found.debian[1] == local_images.DebianRelease("trixie-security", "b" * 64, "2026-11-27T09:00:00Z")
    assert local_images.releases_label(found.debian) == release
    local_images.clear_cache()
