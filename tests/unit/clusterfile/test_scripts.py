"""The section `scripts` is checked, and its scripts are files of heads and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.domain.cluster import Cluster
from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import site_of

SH = {"name": "10-mounts.sh", "text": "#!/bin/sh\n\tmount /data || exit 1 # ü\n"}
LUA = "function slurm_job_submit(job, parts, uid)\n  return slurm.SUCCESS\nend\nfunction slurm_job_modify()\n  return 0\nend\n"


def checked(scripts: Any) -> tuple[Cluster | None, list[tuple[str, str]]]:
    spec = {"name": "lab", "plan": "h100-8", "nodes": 2, "scripts": scripts}
    cluster, faults = check_cluster_file(spec, load_catalogue(), owner="ann")
    return cluster, [(fault.path, fault.message) for fault in faults if fault.level == "error"]


def test_scripts_are_files_with_numbers_that_keep_their_order() -> None:
    second = {"name": "quota", "text": "#!/usr/bin/env python3\n"}
    cluster, faults = checked(
        {"prolog": [SH, second], "epilog": [second], "job_submit": {"name": "job_submit.lua", "text": LUA}}
    )
    assert faults == []
    assert cluster is not None
    files = render_files(cluster, site_of(cluster))
    mine = {path: file for path, file in files["node"].items() if ".d/0" in path}
    assert {path: (file.text, file.mode) for path, file in mine.items()} == {
        "/etc/headway/prolog.d/01-10-mounts.sh": (SH["text"], 0o700),
        "/etc/headway/prolog.d/02-quota": (second["text"], 0o700),
        "/etc/headway/epilog.d/01-quota": (second["text"], 0o700),
    }
    assert files["head"]["/etc/slurm/job_submit.lua"].text == LUA
    assert "\nJobSubmitPlugins=lua\n" in files["head"]["/etc/slurm/slurm.conf"].text


def test_cluster_without_scripts_has_no_file_for_them() -> None:
    cluster, _ = checked({})
    assert cluster is not None
    files = render_files(cluster, site_of(cluster))
    assert "/etc/slurm/job_submit.lua" not in files["head"]
    assert "JobSubmitPlugins" not in files["head"]["/etc/slurm/slurm.conf"].text


@pytest.mark.parametrize(
    ("scripts", "path", "says"),
    [
        ({"prolog": ["10-mounts.sh"]}, "scripts.prolog[0]", "only headway plan and headway apply read the file"),
        ({"prolog": [{**SH, "name": "../x"}]}, "scripts.prolog[0].name", ""),
        ({"prolog": [{**SH, "text": "mount /data\n"}]}, "scripts", "does not begin with #!"),
        ({"prolog": [{**SH, "text": "#!/bin/sh\x00"}]}, "scripts.prolog[0].text", "control character"),
        ({"prolog": [{**SH, "text": "#!/bin/sh\n" + "#" * 70_000}]}, "scripts.prolog[0].text", "is too long"),
        ({"epilog": [SH, SH]}, "scripts", "epilog has two scripts named 10-mounts.sh"),
        ({"job_submit": {"name": "x.lua", "text": "return 0\n"}}, "scripts", "has no function slurm_job_submit"),
        ({"prologue": [SH]}, "scripts.prologue", "did you mean prolog?"),
    ],
)
def test_faults_name_the_field(scripts: Any, path: str, says: str) -> None:
    cluster, faults = checked(scripts)
    assert cluster is None
    assert [place for place, _ in faults] == [path]
    assert says in faults[0][1] or "prologue" in path
