"""Quotas become one change per volume, and a volume that can't have them becomes a note with what to do."""

from __future__ import annotations

import pytest

from headway.changes.quota_changes import quota_changes, quota_fault, quota_notes
from headway.domain.storage.quotas import DesiredQuota, ObservedQuota, UserQuota

GIB = 1 << 30
UIDS = {"alice": 11, "bob": 12}
GOAL = {"/home": DesiredQuota(100 * GIB, 1000, UIDS), "/scratch": DesiredQuota(0, 2000, UIDS)}
SET = UserQuota(100 * GIB, 5, assigned=True)


def seen(**users: UserQuota) -> dict[str, ObservedQuota]:
    return {"/home": ObservedQuota("xfs", "/dev/sdb1", enforced=True, users=users)}


def test_only_users_whose_limit_differs_are_changed() -> None:
    (change,) = quota_changes("lab-head", GOAL, seen(alice=SET))
    assert (change.kind, change.where, change.what, change.why) == (
        "quota.set", "lab-head", "/home", "quota of bob: 100.0 GiB each",
    )  # fmt: skip
    assert change.data == {
        "path": "/home",
        "limit": 100 * GIB,
        "first_project": 1000,
        "uids": {"bob": 12},
        "limits": {"/home": 100 * GIB, "/scratch": 0},
    }
    assert list(quota_changes("lab-head", GOAL, seen(alice=SET, bob=SET))) == []


@pytest.mark.parametrize(
    "half", [UserQuota(100 * GIB, 0, assigned=False), UserQuota(100 * GIB, 0, assigned=True, guarded=False)]
)
def test_folder_outside_its_project_or_without_the_limit_of_its_user_is_changed(half: UserQuota) -> None:
    (change,) = quota_changes("lab-head", GOAL, seen(alice=SET, bob=half))
    assert change.data["uids"] == {"bob": 12}


def test_former_limit_is_removed() -> None:
    before = {"/scratch": ObservedQuota("ext4", "/dev/sdb1", enforced=True, users={"alice": SET})}
    changes = [change for change in quota_changes("lab-head", GOAL, before) if change.what == "/scratch"]
    assert [(change.why, change.data["limit"]) for change in changes] == [("quota of alice: no limit", 0)]


def test_new_machine_gets_limits_and_no_removals() -> None:
    assert [change.what for change in quota_changes("lab-head", GOAL, {})] == ["/home"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("ext4", "tune2fs -O project,quota /dev/sdb1"),
        ("xfs", "Mount it with the options usrquota,prjquota"),
        ("nfs4", "Set them on its server"),
        ("", "no file system that can be read"),
    ],
)
def test_volume_without_quotas_is_a_note_with_what_to_do(kind: str, told: str) -> None:
    without = {path: ObservedQuota(kind, "/dev/sdb1", enforced=False) for path in GOAL}
    assert list(quota_changes("lab-head", GOAL, without)) == []
    (note,) = quota_notes(GOAL, without)
    assert note.startswith("storage.home.quota: no use of /home is limited")
    assert told in note
    assert quota_fault("/home", seen()["/home"]) == ""
