"""A torch whose version is left open fits the driver of the node that builds the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headway.domain.operation_kinds import EnvironmentParams
from headway.environments.build_job import prepare_build, required_python
from tests.support.clusters import builders

UV = """#!/bin/sh
# Stands in for uv: writes down which constraint it gets.
case "$*" in
"pip compile "*)
    while [ $# -gt 0 ]; do
        [ "$1" != --constraints ] || cat "$2" >>chosen
        [ "$1" != --output-file ] || echo "torch==1 --hash=sha256:0" >"$2"
        shift
    done ;;
venv*|"pip install "*|"pip check "*) ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


def build(folder: Path, text: str, driver: str) -> tuple[str, str]:
    """Returns the constraint of a build on a node with this driver, and the build's log."""
    (folder / "uv").write_text(UV)
    (folder / "uv").chmod(0o755)
    (folder / "requirements.txt").write_text(text)
    if driver:
        (folder / "version").write_text(f"{driver}\n")
    params = EnvironmentParams("add", "pytorch", source="requirements.txt", text=text, user="alice")
    request = prepare_build(params, builders.cluster(), "alice", "1", str(folder / "uv")).request
    args = [str(folder) if "/environments/" in word else word for word in request.script_args]
    script = (request.script or "").replace("/sys/module/nvidia/version", str(folder / "version"))
    done = subprocess.run(
        ["bash", "-c", script, "build", *args],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "UV_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    chosen = folder / "chosen"
    return chosen.read_text().strip() if chosen.exists() else "", done.stdout


@pytest.mark.parametrize(
    ("text", "driver", "constraint"),
    [
        ("torch\nnumpy\n", "550.163.01", "torch<2.11"),
        ("torch\nnumpy\n", "580.95.05", ""),
        ("torch\nnumpy\n", "", ""),  # no driver on the node that builds it
        ("torch==2.12\n", "550.163.01", ""),
        ("torchvision\n", "550.163.01", ""),
        ("--extra-index-url https://download.pytorch.org/whl/cu126\ntorch\n", "550.163.01", ""),
    ],
)
def test_open_torch_is_limited_to_what_the_driver_supports(
    tmp_path: Path, text: str, driver: str, constraint: str
) -> None:
    chosen, log = build(tmp_path, text, driver)
    assert chosen == constraint
    said = "the driver of this node is of branch 550, so torch<2.11 is installed: newer builds need branch 580"
    assert (said in log) is bool(constraint)


@pytest.mark.parametrize(
    ("project", "python"),
    [
        ('[project]\nname = "a"\nrequires-python = ">=3.11, <3.13"\n', ">=3.11, <3.13"),
        ('[project]\nname = "a"\n', ""),
        ("project = 3\n", ""),
        ("[project\n", ""),
        ("[project]\nrequires-python = 3.11\n", ""),
    ],
)
def test_python_that_a_project_requires(project: str, python: str) -> None:
    assert required_python(project) == python
