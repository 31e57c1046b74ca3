"""The recipe of a node image."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from headway.errors import NotFound
from headway.images import build, recipe
from headway.images.apt_mirror import Mirror


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "image"
    shutil.copytree(recipe.files_folder(), copy)
    monkeypatch.setattr(recipe, "files_folder", lambda: copy)
    return copy


def test_image_tag_changes_only_with_build_inputs(files: Path) -> None:
    before, base = recipe.inputs_hash("debian13"), recipe.base_hash("debian13")
    assert len(before) == 12
    cache = files / "rootfs" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"1")
    assert recipe.inputs_hash("debian13") == before
    tool = files / "rootfs" / "usr" / "bin" / "nvidia-smi"
    tool.chmod(0o644)
    no_longer_executable = recipe.inputs_hash("debian13")
    (files / "rootfs" / "etc" / "new").write_text("")
    with_new_file = recipe.inputs_hash("debian13")
    assert len({before, no_longer_executable, with_new_file, recipe.inputs_hash("debian12")}) == 4
    assert recipe.base_hash("debian13") == base, "a file of the upper layer must not install the packages again"
    (files / "after_packages.sh").write_text("#!/bin/sh\n")
    assert recipe.base_hash("debian13") != base
    assert recipe.inputs_hash("debian13") != with_new_file


def test_archive_files_belong_to_root(files: Path) -> None:
    packed = io.BytesIO(build._archive(files / "rootfs", {"usr/lib/x": b"1"}))
    with tarfile.open(fileobj=packed) as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}
    assert members["usr/bin/nvidia-smi"].mode == 0o755
    assert members["etc/ssh/sshd_config.d/00-headway-boot.conf"].mode == 0o644
    assert members["usr/lib/x"].size == 1


def test_mmdebstrap_arguments_name_suite_mirror_and_packages(files: Path) -> None:
    there = Mirror(("deb http://mirror.test/debian trixie main",))
    argv = build.mmdebstrap_argv(recipe.get_recipe("debian13"), files, there, Path("/work"))
    assert argv[-3:] == ["trixie", "-", "deb http://mirror.test/debian trixie main"]
    include = next(word for word in argv if word.startswith("--include="))
    assert "slurm-wlm-emulator" not in include
    for package in ("slurmrestd", "libnss-extrausers", "python3-torch"):
        assert package in include.removeprefix("--include=").split(",")


def test_unknown_image_error_lists_known_images() -> None:
    with pytest.raises(NotFound, match="debian13, debian14, debian12"):
        recipe.get_recipe("ubuntu")
