"""Slurm upgrades are limited to supported version steps and need a backup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.catalog.providers import SSH
from headway.catalog.slurm_releases import STATE_READ_BACK
from headway.domain.cluster import BackupRule, Cluster
from headway.rollout.slurm_upgrade_rules import backup_before_upgrade, upgrade_fault
from tests.support.clusters import builders

BACKUP = BackupRule("/backup", 86400, 7, "/etc/headway/key")


def fault(old: str, new: str, cluster: Cluster | None = None) -> str:
    cluster = cluster or replace(builders.cluster(2), backup=BACKUP)
    found = upgrade_fault(old, replace(cluster, slurm_version=new), exists=True)
    return found.message if found else ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("24.11", "24.11"),
        ("22.05", "23.02"),
        ("22.05", "23.11"),
        ("23.02", "24.11"),
        ("24.05", "24.11"),
        ("24.11", "26.05"),
        ("25.11", "26.05"),
    ],
)
def test_accepts_supported_slurm_upgrades(old: str, new: str) -> None:
    assert fault(old, new) == ""


@pytest.mark.parametrize(("old", "new"), [("22.05", "24.11"), ("22.05", "24.05"), ("24.05", "26.05")])
def test_refuses_upgrade_over_too_many_releases(old: str, new: str) -> None:
    said = fault(old, new)
    assert f"not from {old}" in said
    releases = list(STATE_READ_BACK)
    assert releases[releases.index(new) - 1] in said


def test_refuses_downgrade_and_unknown_version() -> None:
    assert "no downgrade" in fault("24.11", "22.05")
    assert "unknown" in fault("24.11", "31.05")


def test_upgrade_requires_backup_and_provider_made_machines() -> None:
    assert "backup" in fault("24.11", "26.05", builders.cluster(2))
    own = replace(builders.cluster(2), backup=BACKUP, provider=SSH)
    assert "are your own" in fault("24.11", "26.05", own)


def test_plan_includes_backup_before_upgrade() -> None:
    before = replace(builders.cluster(2), backup=BACKUP)
    after = replace(before, slurm_version="26.05")
    (change,) = backup_before_upgrade("24.11", before, after)
    assert (change.kind, change.what) == ("backup.make", "/backup")
    assert backup_before_upgrade("24.11", before, before) == backup_before_upgrade("", None, before) == ()
    assert backup_before_upgrade("24.11", after, after) == (), "kept before: it was made then"
    assert backup_before_upgrade("", before, after) == (), "nothing was ever written"


def test_new_cluster_accepts_any_slurm_version() -> None:
    assert upgrade_fault("", builders.cluster(2), exists=False) is None


def test_refuses_upgrade_of_cluster_that_is_down() -> None:
    newer = replace(builders.cluster(2), backup=BACKUP, slurm_version="26.05")
    found = upgrade_fault("24.11", newer, exists=False)
    assert found is not None
    assert "a cluster that is down can't be backed up" in found.message
    assert upgrade_fault("24.11", builders.cluster(2), exists=False) is None
