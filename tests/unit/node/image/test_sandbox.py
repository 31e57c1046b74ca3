"""Links of a container's image."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest


def test_image_symlinks_are_resolved_inside_the_image(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    made = runtime["sandbox"].Sandbox(str(tmp_path), {})
    made.make()
    root = Path(made.root)
    (root / "etc").mkdir()
    (root / "etc/passwd").symlink_to("../../../../run/passwd")
    (root / "up").symlink_to("/etc")
    (root / "ring").symlink_to("ring")
    assert made.inside("/etc/passwd") == "/run/passwd"
    assert made.inside("/up/x/../y") == "/etc/y"
    assert made.inside("/../../a") == "/a"
    with pytest.raises(runtime["messages"].Failed, match="loop of symbolic links"):
        made.inside("/ring")


def test_container_has_the_folder_of_the_jobs_mps_control_daemon(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime["sandbox"], "MPS", f"{tmp_path}/mps/")
    pipe = tmp_path / "mps/20000-2"
    pipe.mkdir(parents=True)
    environment = {"HEADWAY_UID": str(os.getuid()), "HEADWAY_GROUPS": str(os.getgid())}

    def words(**more: str) -> str:
        made = runtime["sandbox"].Sandbox(str(tmp_path / "step"), {**environment, **more})
        made.make()
        return " ".join(made.arguments([], home="/root", show_home=False, script=""))

    assert f" --ro-bind {pipe} {pipe} " in words(CUDA_MPS_PIPE_DIRECTORY=str(pipe))
    assert str(tmp_path / "mps") not in words()
    assert "/etc/ssl" not in words(CUDA_MPS_PIPE_DIRECTORY="/etc/ssl"), "a folder that the user chose"
