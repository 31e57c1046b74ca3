"""Lost, failing and read-only volumes are found; those of other servers request a mount, not a reboot."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import runner, volume_checks
from tests.support.machines.check_inputs import seen


def machine_with_mount(tmp_path: Path, mounts: str, mount: Any) -> Any:
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "mounts").write_text(mounts)
    return runner.MachineReading(config=config.Config(head="h", mounts=(mount,)), now=1.0, proc=str(tmp_path / "proc"))


def test_lost_remote_volume_does_not_request_a_reboot(tmp_path: Path) -> None:
    outside = config.ExpectedMount("/", "/", False, True)
    assert volume_checks.volumes(machine_with_mount(tmp_path, "", outside)).action == "mount"
    assert volume_checks.volumes(machine_with_mount(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert volume_checks.remote_volumes(machine_with_mount(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert volume_checks.remote_volumes(machine_with_mount(tmp_path, "f / nfs4 ro 0 0\n", outside)).action == "mount"
    assert volume_checks.mounts(machine_with_mount(tmp_path, "f / nfs4 ro 0 0\n", outside)) is None
    hung = next(check for check in runner.CHECKS if check.name == "remote_volumes")
    assert hung.hangs == "mount"


@pytest.mark.parametrize(("outside", "action"), [(True, "mount"), (False, "reboot")])
def test_scratch_fault_requests_a_mount_only_if_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: bool, action: str
) -> None:
    plan = config.Config(head="h", mounts=(config.ExpectedMount("/scratch", "/", False, outside),))
    check = next(check for check in runner.CHECKS if check.name == "scratch_writes")
    assert check.hung_result(runner.MachineReading(config=plan, now=1000.0), "hangs").action == action

    def gone(**_: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(volume_checks.tempfile, "TemporaryFile", gone)
    assert volume_checks.scratch_writes(runner.MachineReading(config=plan, now=1000.0)).action == (
        "mount" if outside else "drain"
    )


def machine(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_mount_checks_find_lost_and_read_only_mounts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    plan = config.Config(head="h", mounts=(config.ExpectedMount("/", str(source), False),))
    proc = machine(tmp_path / "proc", self__mounts="disk / ext4 rw,relatime 0 0\n")
    assert volume_checks.mounts(seen(config=plan, proc=str(proc))) is None
    machine(proc, self__mounts="disk / ext4 ro,relatime 0 0\n")
    assert volume_checks.mounts(seen(config=plan, proc=str(proc))).reason == "/ is read-only"
    machine(proc, self__mounts="")
    assert volume_checks.volumes(seen(config=plan, proc=str(proc))).reason == "/ is not mounted"
    source.rmdir()
    assert volume_checks.volumes(seen(config=plan, proc=str(proc))) is None, "a machine that has it in its own way"


@pytest.mark.parametrize(
    ("number", "state"),
    [(errno.ESTALE, "bad"), (errno.ENOTCONN, "bad"), (errno.EIO, "bad"), (errno.EACCES, "ok")],
)
def test_volume_that_returns_an_error_fails_a_prolog_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, state: str
) -> None:
    def statvfs(path: str) -> Any:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(volume_checks.os, "statvfs", statvfs)
    proc = machine(tmp_path / "proc", self__mounts="filer:/s /scratch nfs4 rw 0 0\ndisk /home ext4 rw 0 0\n")
    plan = config.Config(
        head="h", mounts=(config.ExpectedMount("/scratch", "/", False, True), config.ExpectedMount("/home", "/", False))
    )
    for name, path, action in (("remote_volumes", "/scratch", "mount"), ("mounts", "/home", "reboot")):
        check = next(check for check in runner.CHECKS if check.name == name)
        assert check.prolog
        found = runner.run_check(check, seen(config=plan, proc=str(proc)))
        assert found.state == state
        if state == "bad":
            assert (found.reason, found.action) == (f"{path}: {os.strerror(number)}", action)
