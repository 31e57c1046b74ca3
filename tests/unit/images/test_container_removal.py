"""A container's files are deleted before podman removes the container, because podman would delete them under a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.images.container_removal import remove_containers
from headway.images.podman import Podman

LINK = "left"


async def test_files_of_a_stopped_container_are_deleted_before_podman_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, other, said = tmp_path / "overlay/ab12/diff", tmp_path / "kept", tmp_path / "said"
    (stored / "usr/lib").mkdir(parents=True)
    (stored / "usr/lib/libtorch.so").write_text("large")
    other.mkdir()
    (other / "file").touch()
    (stored / LINK).symlink_to(other)
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$1 $(find {stored} -mindepth 1 | wc -l)" >> {said}\n[ "$1" != container ] || echo {stored}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    await remove_containers(Podman(tmp_path), ["lab-1-1"], timeout_s=60)
    assert said.read_text().splitlines() == ["stop 4", "container 4", "rm 0"]
    assert (other / "file").exists(), "a link leads nowhere"


async def test_folders_that_are_no_layer_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").touch()
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" != container ] || printf "%s\\n" {tmp_path}/data "" "<no value>" diff/diff\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    await remove_containers(Podman(tmp_path), ["lab-1-1"], timeout_s=60)
    assert (tmp_path / "data/file").exists()
