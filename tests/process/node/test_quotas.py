"""Quotas limit users on real ext4 and XFS. The kernel of a test machine may have been built without quotas, so a kernel of
its own runs as a process (User-mode Linux), with the root file system of this machine, read-only."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.changes.quota_changes import quota_changes, quota_fault
from headway.domain.storage.quotas import DesiredQuota, ObservedQuota, UserQuota
from headway.paths import node_dir

GUEST = Path(__file__).parents[2] / "support/machines/quota_guest.py"
MIB = 1 << 20
DISK_MIB = 320  # XFS needs 300
ANSWER_S = 240  # generous: the guest boots while other tests run


def limit_users(kind: str, folder: Path) -> dict[str, Any]:
    """Returns what quota_guest.py told about a file system of this kind."""
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_MIB * MIB)
    argv = ["linux.uml", "rootfstype=hostfs", "ro", "mem=256M", f"ubda={disk}", "con=null", "con0=null,fd:1", "quiet"]
    argv += ["init=/usr/bin/python3", "--", str(GUEST), str(node_dir()), "/dev/ubda", kind]
    ran = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False, cwd=folder
    )
    answers = [line.partition(" ")[2] for line in ran.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, ran.stdout + ran.stderr
    told: dict[str, Any] = json.loads(answers[0])
    assert "error" not in told, told
    return told


def observed(told: dict[str, Any]) -> ObservedQuota:
    users = {user: UserQuota(**row) for user, row in told["users"].items()}
    return ObservedQuota(told["type"], told["device"], told["enforced"], users)


@pytest.mark.parametrize(
    ("kind", "error"), [("ext4", "Disk quota exceeded"), ("xfs", "No space left on device")], ids=["ext4", "xfs"]
)
def test_quota_stops_only_the_user_who_exceeds_it(kind: str, error: str, tmp_path: Path) -> None:
    told = limit_users(kind, tmp_path)
    goal = {"/mnt": DesiredQuota(8 * MIB, 1 << 30, {"alice": 1, "bob": 2})}

    without = observed(told["without"])
    assert "mount it with the options usrquota,prjquota" in quota_fault("/mnt", without).lower()
    assert list(quota_changes("head", goal, {"/mnt": without})) == []
    assert "does not limit projects" in told["refused"]

    assert [change.what for change in quota_changes("head", goal, {"/mnt": observed(told["before"])})] == ["/mnt"]
    limited = observed(told["limited"])
    assert list(quota_changes("head", goal, {"/mnt": limited})) == []
    assert 4 * MIB <= limited.users["alice"].used < 5 * MIB, "files that she had before count"

    assert (told["fits"], told["exceeds"], told["bob"], told["on_scratch"]) == ("", error, "", "")
    assert 7 * MIB < observed(told["full"]).users["alice"].used <= 8 * MIB
    assert told["df_mib"] == 8
    assert (told["leaves"], told["after_leaving"]) == ("", "Disk quota exceeded"), "the limit of all her files holds"
    assert told["after_raise"] == ""
    assert observed(told["after_boot"]).users["alice"].limit == 16 * MIB
    assert observed(told["removed"]).users["alice"].limit == 0
    assert told["unlimited"] == ""
