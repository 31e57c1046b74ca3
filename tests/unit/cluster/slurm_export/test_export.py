"""Exported files of the clusters of the render tests: nothing of Headway is in them, and each key has a verdict."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headway.cluster.slurm_export.export import SlurmExport, exported_files
from headway.domain.slurm.reservations import PlannedReservation
from headway.domain.slurm.site_scripts import SiteScript, SiteScripts
from headway.render.files_by_role import render_files
from headway.render.slurm.conf_syntax import parse_lines
from tests.support.clusters.render_cases import cases

CASES = cases()
NOW = datetime.fromisoformat("2026-11-29T06:40")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, SlurmExport]:
    return request.param, exported_files(*CASES[request.param], NOW)


def pairs(text: str) -> Counter[tuple[str, str]]:
    return Counter(pair for line in parse_lines(text) for pair in line.pairs)


def test_each_key_of_headways_files_has_one_verdict(case: tuple[str, SlurmExport]) -> None:
    name, export = case
    rendered = render_files(*CASES[name])["head"]
    read = Counter(
        (file, *pair)
        for file in ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "slurmdbd.conf")
        if f"/etc/slurm/{file}" in rendered
        for pair in pairs(rendered[f"/etc/slurm/{file}"].text).elements()
    )
    assert Counter((entry.file, entry.key, entry.value) for entry in export.keys) == read
    assert all(entry.kept or entry.why for entry in export.keys)
    written = Counter((entry.file, entry.key, entry.written) for entry in export.keys if entry.written is not None)
    assert written == Counter(
        (file, *pair)
        for file in export.files
        if file.endswith(".conf") and file not in ("job_container.conf", "plugstack.conf")
        for pair in pairs(export.files[file]).elements()
    )


def test_nothing_of_headway_is_in_files_that_slurm_or_a_shell_reads(case: tuple[str, SlurmExport]) -> None:
    name, export = case
    state = CASES[name][0].storage.state or "/nowhere"  # a folder of the site
    for file, text in export.files.items():
        if not file.endswith(".md"):
            assert not re.search(r"headway|cluster file|jwt", text.replace(state, ""), re.IGNORECASE), file
        assert "\n\n\n" not in text


def test_scripts_are_valid_shell(case: tuple[str, SlurmExport], tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", case[1].files["README.md"], re.DOTALL)
    assert len(blocks) == 2
    for text in [*blocks, *(text for file, text in case[1].files.items() if file.endswith(".sh"))]:
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_gpu_cluster_exports_these_lines() -> None:
    export = exported_files(*CASES["local-gpus-24.11"], NOW)
    conf = export.files["slurm.conf"]
    for line in (
        "SlurmctldHost=lab-head",
        "StateSaveLocation=/var/lib/slurm/slurmctld",
        "ReturnToService=1",
        "TmpFS=/tmp",
        "MaxStepCount=50000",
    ):
        assert f"\n{line}\n" in conf
    assert "10.87." not in conf + export.files["slurmdbd.conf"]
    assert "10.87.3.10 lab-head\n" in export.files["hosts"]
    assert export.files["job_container.conf"]
    dropped = {entry.key for entry in export.keys if entry.written is None}
    assert {"Prolog", "Epilog", "CliFilterPlugins", "AuthAltTypes"} <= dropped
    report = export.files["report.md"]
    assert "SIMULATED" in report
    assert all(f"| {key} |" in report for key in dropped)


def test_accounts_and_users_are_in_scripts() -> None:
    export = exported_files(*CASES["local-gpus-24.11"], NOW)
    cluster, site = CASES["local-gpus-24.11"]
    assert "run sacctmgr -i add cluster lab\n" in export.files["qos.sh"]
    for team in cluster.teams:
        assert f"run sacctmgr -i add qos {team.name}\n" in export.files["qos.sh"]
        assert f"add account {team.name} set parent=root" in export.files["accounts.sh"]
    for user in cluster.users:
        assert f"add {user.name} {site.uids[user.name]} /home/{user.name}\n" in export.files["users.sh"]
        assert f"add user {user.name} account={user.teams[0]}" in export.files["accounts.sh"]
    for name in site.departed:
        assert f"# {name} has left; files with uid {site.uids[name]} may remain" in export.files["users.sh"]


def test_scripts_of_the_site_are_exported() -> None:
    cluster, site = CASES["local-gpus-24.11"]
    prolog, lua = SiteScript.of("mounts.sh", "#!/bin/sh\ntrue\n"), SiteScript.of("rules.lua", "return slurm.SUCCESS\n")
    export = exported_files(replace(cluster, scripts=SiteScripts(prolog=(prolog,), job_submit=lua)), site, NOW)
    conf = export.files["slurm.conf"]
    assert "\nProlog=/etc/slurm/site-prolog-*\n" in conf
    assert "\nEpilog=" not in conf
    assert "\nJobSubmitPlugins=lua\n" in conf
    assert export.files["site-prolog-01-mounts.sh"] == prolog.text
    assert export.files["job_submit.lua"] == lua.text
    head, node = re.findall(r"```sh\n(.*?)```", export.files["README.md"], re.DOTALL)
    assert " job_submit.lua /etc/slurm/\n" in head
    assert "\ninstall -m 755 site-prolog-01-mounts.sh /etc/slurm/\n" in node


def test_reservations_are_exported_as_commands() -> None:
    cluster, site = CASES["local-gpus-24.11"]
    window = PlannedReservation("window", NOW, 3600, "weekly", users=("root",), flags=("MAINT", "WEEKLY"))
    over = PlannedReservation("over", NOW - timedelta(days=3), 3600, users=("root",))
    export = exported_files(replace(cluster, reservations=(window, over)), site, NOW)
    commands = [line for line in export.files["reservations.sh"].splitlines() if line.startswith("run ")]
    assert commands == [
        "run scontrol create reservation ReservationName=window StartTime=2026-12-06T06:40:00 EndTime=2026-12-06T07:40:00 "
        "Nodes=ALL Users=root Flags=MAINT,WEEKLY"
    ]
    assert "sh reservations.sh" in export.files["README.md"]
    assert "reservations.sh" not in exported_files(cluster, site, NOW).files
