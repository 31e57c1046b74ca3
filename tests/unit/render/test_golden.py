"""Every rendered file of the test clusters equals its copy in tests/unit/render/golden; a change of rendering shows
as a diff there, and `pytest tests/unit/render --update` rewrites the copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import cases

GOLDEN = Path(__file__).parent / "golden"
LIST = "files.txt"
# What groups make a difference to; the rest is as in the other cases.
OF_GROUPS = (
    LIST,
    "etc/slurm/",
    "headway/power",
    "etc/headway/mps",
    "agent.json",
    "gpus.json",
    "targets.json",
    "tmpfiles.d",
    "slurmd.service",
)


OF_HEADS = (
    "slurmctld.service",
    "take-back",
    "headway/leads",
    "state-folder",
    ".mount",
    "prolog",
    "firewall.nft",
    "slurm.conf",
    "agent.json",
    "etc/hosts",
    LIST,
    "slurmd.service",
)


def kept(cluster: Cluster) -> tuple[str, ...]:
    return OF_HEADS if cluster.controllers > 1 else OF_GROUPS


def listing(files: dict[str, File]) -> str:
    rows = [
        f"{file.mode:04o} {file.owner}:{file.group} {path}" + (f" <{file.secret}>" if file.secret else "")
        for path, file in sorted(files.items())
    ]
    return "\n".join(rows) + "\n"


def texts(files: dict[str, File]) -> dict[str, str]:
    return {LIST: listing(files)} | {path.lstrip("/"): file.text for path, file in files.items() if not file.secret}


@pytest.mark.parametrize("case", sorted(cases()))
def test_rendered_files_match_golden_copies(case: str, request: pytest.FixtureRequest) -> None:
    cluster, site = cases()[case]
    folder = GOLDEN / case
    now = {
        f"{role}/{path}": text
        for role, files in render_files(cluster, site).items()
        for path, text in texts(files).items()
        if (len(cluster.groups) == 1 and cluster.controllers == 1) or any(part in path for part in kept(cluster))
    }
    if request.config.getoption("--update", default=False):
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in now.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    agreed = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert sorted(now) == sorted(agreed), "files came or went"
    for path, text in now.items():
        assert text == agreed[path], path
