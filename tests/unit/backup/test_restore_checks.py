"""A restore is refused before it changes anything: another cluster's backup, another Slurm version, other uids."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.backup import restore_checks
from headway.backup.archive import Header
from headway.errors import Conflict, Refused

HEADER = Header("lab", 0.0, "0.1.0", "24.11", "c2FsdA==")


def test_backup_of_another_cluster_is_refused_with_the_right_command() -> None:
    restore_checks.require_backup_of("lab", Path("/b/lab.backup"), HEADER)
    with pytest.raises(Refused, match="is a backup of the cluster lab, not of den") as refused:
        restore_checks.require_backup_of("den", Path("/b/lab.backup"), HEADER)
    assert refused.value.hint == "headway restore lab --from /b/lab.backup"


@pytest.mark.parametrize(("present", "has_machines"), [("24.11", True), ("", False), ("25.05", False)])
def test_same_slurm_or_no_machines_take_the_backup(present: str, has_machines: bool) -> None:
    restore_checks.require_same_slurm("lab", HEADER, present, has_machines=has_machines)


def test_machines_with_another_slurm_take_no_backup() -> None:
    with pytest.raises(Refused, match=r"lab runs Slurm 25\.05 and this backup is of 24\.11"):
        restore_checks.require_same_slurm("lab", HEADER, "25.05", has_machines=True)


async def test_users_with_other_uids_are_named() -> None:
    async def uid_conflicts(uids: dict[str, int]) -> list[str]:
        return [f"{user} has uid 20007 here and {uid} there" for user, uid in uids.items()]

    store: Any = SimpleNamespace(cluster_records=SimpleNamespace(uid_conflicts=uid_conflicts))
    await restore_checks.require_matching_uids("lab", store, {})
    with pytest.raises(Conflict, match="ann has uid 20007 here and 20001 there"):
        await restore_checks.require_matching_uids("lab", store, {"ann": 20001})
