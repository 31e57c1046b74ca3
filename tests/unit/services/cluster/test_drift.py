"""Drift is what an apply would set back, without machines that are out of service, missing or of another image."""

from __future__ import annotations

from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.services.cluster.drift import MOST_NAMED, disturbs_work, drift_changes, drift_report

CONF = "/etc/slurm/slurm.conf"


def test_repaired_missing_and_outdated_machines_are_no_drift() -> None:
    changes = (
        Change("file.write", "lab-head", CONF, ""),
        Change("file.write", "lab-1-2", CONF, ""),
        Change("machine.create", "lab-1-3", "lab-1-3", ""),
        Change("machine.rebuild", "lab-1-4", "lab-1-4", "", Disturbs.REBUILD),
        Change("setting.keep", "cluster", "file", ""),
    )
    assert drift_changes(ChangeSet("lab", changes), {"lab-1-2"}) == changes[:1]


def test_report_names_each_object_once_with_its_machines() -> None:
    changes = [Change("file.write", f"lab-1-{n}", CONF, "") for n in (1, 2, 3)]
    changes += [Change("unit.restart", "lab-head", "slurmdbd.service", "", Disturbs.CONTROLLER_RESTART)]
    changes += [
        Change("account", "cluster", "team vision", ""),
        Change("unit.restart", "lab-head", "slurmdbd.service", ""),
    ]
    report = drift_report(changes, 7.0)
    assert report.objects == [f"{CONF} on lab-1-[1-3]", "slurmdbd.service on lab-head", "team vision"]
    assert (report.checked_at, report.changes, report.disturbs_work) == (7.0, 6, True)


def test_report_without_changes_and_with_very_many() -> None:
    assert drift_report([], 7.0).changes == 0
    many = [Change("file.write", "lab-head", f"/etc/{n}", "") for n in range(1000)]
    report = drift_report(many, 7.0)
    assert (report.changes, len(report.objects), report.disturbs_work) == (1000, MOST_NAMED, False)
    assert not disturbs_work(many)
