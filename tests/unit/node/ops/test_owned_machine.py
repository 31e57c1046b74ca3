"""On an owned machine, original files are kept before Headway replaces them, and a leftover policy-rc.d of Headway is
removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.jobs import secret_server
from ops import packages, steps
from programs import install_job_secrets


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


def test_machine_that_is_given_back_has_no_secrets_of_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["secrets", "secrets.new", "secrets.lock", "deliveries", "deliveries.new"]
    for name in files:
        (tmp_path / name).write_text("value")
    monkeypatch.setattr(steps, "JOB_SECRETS_FILE", str(tmp_path / "secrets"))
    monkeypatch.setattr(steps, "SECRET_DELIVERIES_FILE", str(tmp_path / "deliveries"))
    steps.remove_job_secrets()
    assert not [*tmp_path.iterdir()]
    steps.remove_job_secrets()


def test_every_service_of_headway_stops_when_a_machine_is_given_back() -> None:
    files = ["port-access.service", "rest.socket", "rest@.service", "agent.service"]
    managed = [f"/etc/systemd/system/headway-{file}" for file in files]
    others = [
        "/etc/systemd/system/slurmd.service.d/headway.conf",
        "/etc/systemd/system/home.mount",
        "/etc/headway-x.service",
    ]
    assert steps.own_units([*others, *managed]) == [
        "headway-port-access.service", "headway-rest.socket", "headway-rest@*.service", "headway-agent.service",
    ]  # fmt: skip


def test_all_programs_of_a_machine_name_the_same_files() -> None:
    """They are sent alone, so none of them can import the path from another."""
    assert {steps.JOB_SECRETS_FILE, install_job_secrets.JOB_SECRETS_FILE} == {secret_server.JOB_SECRETS_FILE}
    assert steps.SECRET_DELIVERIES_FILE == secret_server.SECRET_DELIVERIES_FILE


@pytest.mark.parametrize("way", ["install", "leave"])
def test_leftover_policy_rc_d_of_headway_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "_POLICY", str(policy))
    monkeypatch.setattr(packages, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(packages, "_NAMES", str(tmp_path / "nsswitch.conf"))
    monkeypatch.setattr(packages, "missing_packages", nothing)

    def go() -> None:
        if way == "install":
            packages.install_packages(["munge"], [])
        else:
            packages.remove_parts()

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
    packages.remove_parts()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others", "torchrun"]


def nothing(_: Any) -> list[str]:
    return []
