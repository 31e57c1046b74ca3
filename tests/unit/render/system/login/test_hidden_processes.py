"""Processes of other users are hidden on every machine."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from headway.render.files_by_role import render_files
from headway.render.system.login.hidden_processes import SERVICE
from headway.render.system.unit_list import units_by_role
from tests.support.clusters.render_cases import gpu_cluster, site_of

GPU = gpu_cluster()


def test_every_machine_hides_processes_before_users_sign_in() -> None:
    site = site_of(GPU)
    for role, files in render_files(GPU, site).items():
        text = files[f"/etc/systemd/system/{SERVICE}"].text
        assert "remount,hidepid=invisible" in text
        assert "Before=ssh.service slurmd.service" in text
        assert SERVICE in [unit.name for unit in units_by_role(GPU, site)[role]], role


def test_login_manager_still_sees_processes() -> None:
    for files in render_files(GPU, site_of(GPU)).values():
        logind = files["/etc/systemd/system/systemd-logind.service.d/headway.conf"].text
        assert "SupplementaryGroups=adm\n" in logind


def test_systemd_lists_processes_of_units_for_root_only() -> None:
    policy = render_files(GPU, site_of(GPU))["head"]["/etc/dbus-1/system.d/headway.conf"].text
    denied = {
        (rule.get("send_interface"), rule.get("send_member")) for rule in ElementTree.fromstring(policy).iter("deny")
    }
    assert ("org.freedesktop.systemd1.Manager", "GetUnitProcesses") in denied
    assert ("org.freedesktop.systemd1.Service", "GetProcesses") in denied
    assert all(rule.get("send_interface") for rule in ElementTree.fromstring(policy).iter("deny")), (
        "dbus-daemon requires it"
    )
