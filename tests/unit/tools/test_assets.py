"""tools/assets.py does nothing when nothing changed, and prints a clear message when npm fails."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, working in a folder of its own with an npm that a test writes."""
    spec = importlib.util.spec_from_file_location("headway_assets", ROOT / "tools" / "assets.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("package.json", "package-lock.json"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    vendor = tmp_path / "vendor"
    for name, value in {
        "ROOT": tmp_path,
        "CACHE": tmp_path / "cache",
        "VENDOR": vendor,
        "STAMP": vendor / ".lock-sha256",
    }.items():
        monkeypatch.setattr(module, name, value)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return module


def npm(assets: ModuleType, script: str) -> None:
    path = assets.ROOT / "bin" / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def good(assets: ModuleType) -> str:
    paths = [*assets.FILES.values(), *assets.DEV_FILES]
    made = [f"mkdir -p node_modules/{Path(path).parent} && echo {path} >node_modules/{path}" for path in paths]
    return "\n".join(['echo "$@" >>calls', *made])


def calls(assets: ModuleType) -> list[str]:
    return (assets.CACHE / "calls").read_text().splitlines()


def test_fetches_libraries_once_without_npm_scripts(assets: ModuleType) -> None:
    npm(assets, good(assets))
    assert assets.main([]) == 0
    assert assets.main([]) == 0
    assert assets.main(["--dev"]) == 0
    assert len(calls(assets)) == 1
    assert calls(assets)[0].startswith("ci --ignore-scripts")
    assert {p.name for p in assets.VENDOR.iterdir()} == {*assets.FILES, ".lock-sha256"}


def test_changed_lock_or_missing_file_triggers_fetch(assets: ModuleType) -> None:
    npm(assets, good(assets))
    assert assets.main([]) == 0
    (assets.ROOT / "package-lock.json").write_text("{}")
    assert assets.main([]) == 0
    (assets.VENDOR / "htmx.min.js").unlink()
    assert assets.main([]) == 0
    assert len(calls(assets)) == 3


def test_npm_failure_is_reported(assets: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    npm(assets, "echo 'npm error network unreachable' >&2; exit 1")
    assert assets.main([]) == 1
    captured = capsys.readouterr().err
    assert "npm error network unreachable" in captured
    assert "Traceback" not in captured
    assert not assets.STAMP.exists()


def test_missing_library_file_is_reported(assets: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    npm(assets, "exit 0")
    assert assets.main([]) == 1
    assert "htmx.org/dist/htmx.min.js" in capsys.readouterr().err


def test_package_lock_pins_versions_without_urls() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    document = json.loads((ROOT / "package.json").read_text())
    for name, version in {**document["dependencies"], **document["devDependencies"]}.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    for name, entry in lock["packages"].items():
        assert "resolved" not in entry, name
        assert not name or entry["integrity"].startswith("sha512-"), name
