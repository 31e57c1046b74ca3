"""export slurm writes the server's files to a new folder, and prints a summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.schemas.clusters import SlurmExportOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture

FILES = {"slurm.conf": "ClusterName=lab\n", "README.md": "# lab\n", "report.md": "# Slurm files\n"}


@pytest.fixture
def exported(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    out = SlurmExportOut(cluster="lab", files=FILES, kept=1200, changed=4, left_out=8, lost=["pages", "backups"])
    cli.api.on("clusters.slurm_export", out)
    return cli


def test_export_writes_files_and_names_the_report(exported: Cli, tmp_path: Path) -> None:
    assert exported("export", "slurm", "lab").out.splitlines() == [
        "wrote 3 files to lab-slurm: slurm.conf, README.md, report.md",
        "  1,200 keys are kept, 4 changed, 8 left out",
        "  2 features of lab are not in plain Slurm: lab-slurm/report.md",
        "  next: lab-slurm/README.md",
    ]
    assert {file.name: file.read_text() for file in (tmp_path / "lab-slurm").iterdir()} == FILES


def test_export_overwrites_nothing(exported: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/slurm.conf").write_text("ClusterName=old\n")
    done = exported("export", "slurm", "lab", "--to", "mine")
    assert (done.code, "mine/slurm.conf already exists" in done.err) == (1, True)
    assert {file.name: file.read_text() for file in (tmp_path / "mine").iterdir()} == {
        "slurm.conf": "ClusterName=old\n"
    }


def test_json_names_the_files(exported: Cli) -> None:
    found = json.loads(exported("export", "slurm", "lab", "--to", "new", "-o", "json").out)
    assert found["lost"] == ["pages", "backups"]
    assert found["files"] == ["new/slurm.conf", "new/README.md", "new/report.md"]
