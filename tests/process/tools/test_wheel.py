"""The built package contains and finds everything that the source tree has at run time."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TREES = {"src/headway": "headway", "node": "headway/_node"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does it: with the files' modes."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"import hatchling.build as b; print(b.build_wheel({str(folder)!r}))"
    ran = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    place = folder / "site"
    with zipfile.ZipFile(folder / ran.stdout.split()[-1]) as wheel:
        for entry in wheel.infolist():
            Path(wheel.extract(entry, place)).chmod(entry.external_attr >> 16 & 0o777)
    return place


def files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Relative path -> (content, whether it is a program)."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK)) for path in found}


def test_wheel_contains_all_source_files(installed: Path) -> None:
    for source, place in TREES.items():
        there = files(installed / place)
        assert {name for name, value in files(ROOT / source).items() if there.get(name) != value} == set()
    for name in ("py.typed", "catalog/plans.yaml", "web/static/vendor/htmx.min.js", "_node/ops/__main__.py"):
        assert (installed / "headway" / name).is_file(), name
    assert not list(installed.rglob("__pycache__"))


def test_installed_package_finds_node_files(installed: Path) -> None:
    program = (
        "from headway.paths import node_dir; from headway.images.recipe import inputs_hash;"
        "print(node_dir(), inputs_hash('debian13'))"
    )

    def say(package: Path) -> list[str]:
        env = {**os.environ, "PYTHONPATH": str(package)}
        argv = [sys.executable, "-c", program]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.split()

    folder, from_wheel = say(installed)
    assert folder == str(installed / "headway" / "_node")
    assert from_wheel == say(ROOT / "src")[1]
