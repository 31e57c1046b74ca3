"""A plan shows changes of settings that only the server uses, so that apply sends the file although no machine
changes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.changes.desired_accounts import desired_accounts
from headway.changes.setting_changes import file_change, setting_changes
from headway.clusterfile.load import check_cluster_file
from headway.domain.cluster import Cluster
from headway.domain.storage.folders import Dataset
from headway.render.files_by_role import render_files
from headway.render.system.unit_list import units_by_role
from tests.support.clusters import builders

CATALOGUE = load_catalogue()
FILE: dict[str, Any] = {
    "name": "lab",
    "groups": {"gpu": {"plan": "h100-8", "nodes": 2}, "cpu": {"plan": "cpu-64", "nodes": 1}},
    "teams": {"vision": {"users": ["alice", "bob"], "leads": ["bob"], "budget": {"usd": 20000}}},
}
OWN: dict[str, Any] = {
    "name": "lab",
    "provider": "ssh",
    "plan": "h100-8",
    "nodes": 1,
    "hosts": [{"address": "10.0.0.1"}, {"address": "10.0.0.2"}],
}


def resolved(file: dict[str, Any], *path: Any, value: Any = None) -> Cluster:
    file = copy.deepcopy(file)
    place: Any = file
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    if path:
        place[path[-1]] = value
    cluster, faults = check_cluster_file(file, CATALOGUE, owner="alice")
    assert cluster is not None, faults
    return cluster


def told(before: Cluster, after: Cluster) -> dict[str, str]:
    return {change.what: change.why for change in setting_changes(before, after)}


@pytest.mark.parametrize(
    ("path", "value", "name", "words"),
    [
        (
            ("teams", "vision", "budget"),
            {"usd": 5, "warn": 0.5, "cap": False},
            "teams.vision.budget",
            "20,000 usd a month, warned of at 80% becomes 5 usd a month, warned of at 50%, without a cap",
        ),
        (("teams", "vision", "leads"), [], "teams.vision.leads", "bob becomes none"),
        (("teams", "vision", "leads"), ["alice", "bob"], "teams.vision.leads", "bob becomes alice, bob"),
        (("cost", "usd_per_hour"), 100.5, "cost.usd_per_hour", "none becomes 100.5"),
        (("cost", "timezone"), "Europe/Berlin", "cost.timezone", "UTC becomes Europe/Berlin"),
        (("cost", "idle"), "share", "cost.idle", "use becomes share"),
        (("cost", "usd_per_kwh"), 0.3, "cost.usd_per_kwh", "none becomes 0.3"),
        (("groups", "gpu", "reserved"), True, "groups.gpu.reserved", "false becomes true"),
        (("groups", "gpu", "price"), 1.5, "groups.gpu.price", "23.92 becomes 1.5"),
        (
            ("secrets", "munge"),
            {"file": "/etc/headway/munge.key"},
            "secrets.munge",
            "none becomes /etc/headway/munge.key",
        ),
    ],
)
def test_setting_used_only_by_the_server_is_a_change(path: tuple[str, ...], value: Any, name: str, words: str) -> None:
    assert told(resolved(FILE), resolved(FILE, *path, value=value))[name] == words


def test_changed_ssh_login_of_a_host_is_a_change() -> None:
    after = resolved(OWN, "hosts", 1, value={"address": "10.0.0.2", "user": "ops", "key": "/root/.ssh/new"})
    (change,) = setting_changes(resolved(OWN), after)
    assert change.why == "root at port 22, the cluster's key becomes ops at port 22, key /root/.ssh/new"
    grown = resolved(OWN, "hosts", value=[*OWN["hosts"], {"address": "10.0.0.3"}])
    assert told(resolved(OWN), grown) == {"hosts.10.0.0.3": "none becomes root at port 22, the cluster's key"}


def test_replaced_host_address_is_no_setting_change() -> None:
    after = resolved(OWN, "hosts", 1, value={"address": "10.0.0.9"})
    assert setting_changes(resolved(OWN), after) == ()


def test_file_change_reports_any_other_difference() -> None:
    """Whatever may be told of by nothing else."""
    before = resolved(FILE)
    assert file_change(before, before) == file_change(None, before) == ()
    versions = Dataset("tiny", "/var/lib/tiny", "/datasets/tiny", versioned=True)
    assert file_change(before, replace(before, storage=replace(before.storage, datasets=(versions,)))) == ()
    assert [change.what for change in file_change(before, resolved(FILE, "cost", "pue", value=2))] == ["file"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("teams", "vision", "limits"), {"gpu_hours": {"hours": 5, "per": "week"}}),
        (("groups", "gpu", "spot"), True),
        (("health", "tries"), 5),
        (("backup",), {"to": "/backup", "key_file": "/etc/headway/backup.key"}),
        (("mail",), {"relay": "mail.example.com:25"}),
    ],
)
def test_every_setting_changes_files_accounts_or_server_settings(path: tuple[str, ...], value: Any) -> None:
    before, after = resolved(FILE), resolved(FILE, *path, value=value)
    assert before != after
    there = [
        (render_files(one, builders.site(one)), desired_accounts(one), units_by_role(one, builders.site(one)))
        for one in (before, after)
    ]
    assert there[0] != there[1] or setting_changes(before, after)
