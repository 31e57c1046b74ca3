"""Faults of volumes from other servers request a mount, not a reboot."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import runner, system_checks


def seen(tmp_path: Path, mounts: str, mount: Any) -> Any:
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "mounts").write_text(mounts)
    return runner.MachineState(config=config.Config(head="h", mounts=(mount,)), now=1.0, proc=str(tmp_path / "proc"))


def test_lost_remote_volume_does_not_request_a_reboot(tmp_path: Path) -> None:
    outside = config.Mount("/", "/", False, True)
    assert system_checks.volumes(seen(tmp_path, "", outside)).action == "mount"
    assert system_checks.volumes(seen(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert system_checks.remote_volumes(seen(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert system_checks.remote_volumes(seen(tmp_path, "f / nfs4 ro 0 0\n", outside)).action == "mount"
    assert system_checks.mounts(seen(tmp_path, "f / nfs4 ro 0 0\n", outside)) is None
    hung = next(check for check in runner.CHECKS if check.name == "remote_volumes")
    assert hung.hangs == "mount"


@pytest.mark.parametrize(("outside", "action"), [(True, "mount"), (False, "reboot")])
def test_scratch_fault_requests_a_mount_only_if_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: bool, action: str
) -> None:
    plan = config.Config(head="h", mounts=(config.Mount("/scratch", "/", False, outside),))
    check = next(check for check in runner.CHECKS if check.name == "scratch_writes")
    assert check.hung_result(runner.MachineState(config=plan, now=1000.0), "hangs").action == action

    def gone(**_: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(system_checks.tempfile, "TemporaryFile", gone)
    assert system_checks.scratch_writes(runner.MachineState(config=plan, now=1000.0)).action == (
        "mount" if outside else "drain"
    )
