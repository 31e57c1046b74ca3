"""Programs in containers get the right environment, libraries and GPUs; a running container is entered only if it matches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headway.images import recipe


def test_image_environment_does_not_override_job_variables(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    made = runtime["sandbox"].Sandbox(str(tmp_path), {})
    made.make()
    config = {
        "Env": ["PATH=/opt/bin", "CUDA_VISIBLE_DEVICES=7", "SLURM_JOB_ID=1", "HOME=/", "A=1\n2"],
        "WorkingDir": "/w",
    }
    (Path(made.root) / ".headway-image.json").write_text(json.dumps(config))
    assert made.state(driver=False).split(b"\0") == [b"/w", b"PATH=/opt/bin", b"A=1\n2", b""]
    for nonsense in ("[1]", '{"Env": 7}', '{"Env": [7], "WorkingDir": 7}'):
        (Path(made.root) / ".headway-image.json").write_text(nonsense)
        assert b"PATH=/usr/local/sbin" in made.state(driver=False)


def test_driver_libraries_come_first_in_the_library_path(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    box = runtime["sandbox"]
    made = box.Sandbox(str(tmp_path), {"LD_LIBRARY_PATH": "/mine:/too"})
    made.make()
    place = b"LD_LIBRARY_PATH=" + box.DRIVER_PLACE.encode()
    assert place + b":/mine:/too" in made.state(driver=True).split(b"\0")
    (Path(made.root) / ".headway-image.json").write_text('{"Env": ["LD_LIBRARY_PATH=/image"]}')
    assert place + b":/image" in made.state(driver=True).split(b"\0")
    assert place in box.Sandbox(str(tmp_path / "other"), {}).state(driver=True).split(b"\0")
    assert b"LD_LIBRARY_PATH" not in box.Sandbox(str(tmp_path / "other"), {"LD_LIBRARY_PATH": "/x"}).state(driver=False)


@pytest.fixture
def enter(tmp_path: Path) -> Any:
    """Enters the container `work`, which runs: of image a/b:1, with two mounts. Gives what the step is told and what it says."""
    folder = tmp_path / "name-work"
    folder.mkdir()
    began = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    (folder / "holder").write_text(json.dumps([os.getpid(), began]))
    (folder / "image").write_text("/x/sha256-1.sqsh\ndocker.io/a/b:1")
    (folder / "shown").write_text(
        json.dumps({"home": False, "mounts": [["/a", "/b", False], ["/data", "/data", True]]})
    )
    program = str(recipe.files_folder() / "rootfs/usr/lib/headway/container")

    def step(*words: str) -> tuple[str, str]:
        told, report = os.pipe()
        argv = [sys.executable, "-I", "-S", program, "step", "--folder", str(tmp_path), "--step", "1", "--cache", "/x"]
        argv += ["--name", "work", "--report", str(report), *words]
        done = subprocess.run(argv, pass_fds=[report], stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        os.close(report)
        with os.fdopen(told) as file:
            return file.read().strip(), done.stderr

    return step


@pytest.mark.parametrize(
    "words",
    [[], ["--mounts", "/a:/b"], ["--mounts", "/data:/data:ro,/a:/b"], ["--image", "docker://a/b:1"],
     ["--image", "me@docker.io#a/b:1"]],
)  # fmt: skip
def test_running_container_is_entered_if_it_matches_the_request(enter: Any, words: list[str]) -> None:
    assert enter(*words) == (f"ready {os.getpid()}", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mounts", "/a:/b,/scratch/me:/out"], "container work runs already, without /scratch/me:/out\n"),
        (["--mounts", "/data"], "without /data:/data"),  # to be written to
        (["--home"], "without your home"),
        (["--image", "a/b:2"], "container work was made of docker.io/a/b:1, not of a/b:2"),
    ],
)
def test_running_container_that_lacks_a_request_is_not_entered(enter: Any, words: list[str], text: str) -> None:
    told, why = enter(*words)
    assert (told, text in why) == ("", True), why
    assert "--container-name" in why


def test_stopped_container_is_not_restarted_from_another_image(enter: Any, tmp_path: Path) -> None:
    (tmp_path / "name-work/holder").unlink()
    told, why = enter("--image", "/x/y.sqsh")
    assert (told, "was made of docker.io/a/b:1, not of /x/y.sqsh" in why) == ("", True), why
