"""On an owned machine, original files are kept before Headway replaces them, and a leftover policy-rc.d of Headway is
removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops import packages, steps


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    monkeypatch.setattr(steps, "BEFORE", str(folder))
    monkeypatch.setattr(steps, "MANAGED", str(tmp_path / "managed.json"))
    return folder


def keep(*paths: Path) -> None:
    steps.op_keep({"paths": [str(path) for path in paths]})


def test_original_file_replaced_by_a_later_apply_is_kept(tmp_path: Path, before: Path) -> None:
    first, later = tmp_path / "hosts", tmp_path / "motd"
    first.write_text("theirs")
    later.write_text("theirs too")
    keep(first)
    first.write_text("ours")
    keep(first, later)
    assert Path(f"{before}{first}").read_text() == "theirs"
    assert Path(f"{before}{later}").read_text() == "theirs too"


def test_files_of_headway_are_never_kept_as_originals(tmp_path: Path, before: Path) -> None:
    new, known = tmp_path / "new", tmp_path / "known"
    keep(new)  # nothing stood there
    new.write_text("ours, by an apply that was killed before it wrote its list")
    known.write_text("ours")
    (tmp_path / "managed.json").write_text(json.dumps([str(known)]))
    keep(new, known)
    assert not Path(f"{before}{new}").exists()
    assert not Path(f"{before}{known}").exists()


def test_kept_folder_of_an_earlier_version_is_continued(tmp_path: Path, before: Path) -> None:
    ours, later = tmp_path / "ours", tmp_path / "later"
    ours.write_text("ours")
    later.write_text("theirs")
    before.mkdir()
    keep(ours)
    keep(ours, later)
    assert not Path(f"{before}{ours}").exists()
    assert Path(f"{before}{later}").read_text() == "theirs"


@pytest.mark.parametrize("way", ["install", "leave"])
def test_leftover_policy_rc_d_of_headway_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "_POLICY", str(policy))
    monkeypatch.setattr(packages, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(packages, "_NAMES", str(tmp_path / "nsswitch.conf"))
    monkeypatch.setattr(packages, "missing", nothing)

    def go() -> None:
        if way == "install":
            packages.install(["munge"], [])
        else:
            packages.leave()

    policy.write_text(packages._POLICY_TEXT)
    go()
    assert not policy.exists()
    policy.write_text("#!/bin/sh\n# the site's own\nexit 101\n")
    go()
    assert policy.exists()


def test_leaving_removes_links_to_own_programs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_POLICY", "_NAMES"):
        monkeypatch.setattr(packages, name, str(tmp_path / name))
    monkeypatch.setattr(packages, "OWN", "/usr/lib/headway-of-this-test")
    monkeypatch.setattr(packages, "_PROGRAMS", str(tmp_path))
    (tmp_path / "seff").symlink_to("/usr/lib/headway-of-this-test/bin/seff")
    (tmp_path / "others").symlink_to("/bin/true")
    (tmp_path / "torchrun").touch()
    packages.leave()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others", "torchrun"]


def nothing(_: Any) -> list[str]:
    return []
