"""import writes a valid file, a catalogue and a report, never over an existing file, and prints a summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.sdk.cluster_file import load_document
from headway.slurm_import.importer import SiteFiles
from tests.support.cli_fakes import Cli, cli
from tests.support.slurm_sites import FILES, SECRET

__all__ = ["cli"]  # a fixture


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / name).write_text(text)
    return tmp_path


def test_summary_names_verdicts_files_and_the_next_step(cli: Cli, site: Path) -> None:
    done = cli("import", "--from", "old")
    assert (done.code, cli.api.calls) == (0, [])  # no server is needed
    first, counts, decide, *more = done.out.splitlines()
    assert first == "read 13 files of old: 6 nodes, 3 partitions, 3 teams, 3 users"
    assert "keys and lines are carried, 4 kept under slurm" in counts
    assert decide.endswith("need a decision: helix/report.md")
    assert "  not read: /etc/slurm/missing.conf: the file was not found" in more
    assert more[-2:] == [
        "wrote helix/cluster.yaml, helix/catalogue.yaml, helix/report.md",
        "  next: headway plan helix/cluster.yaml",
    ]


def test_written_files_are_what_plan_loads(cli: Cli, site: Path) -> None:
    assert cli("import", "--from", "old", "--to", "new", "--rehearse").code == 0
    for name, provider in (("cluster.yaml", "ssh"), ("rehearsal.yaml", "local")):
        document = load_document(site / "new" / name, config_dir=site / "config", home=site)
        cluster, _ = resolve_cluster_file(document.spec, load_catalogue(document.catalogue), owner="ann")
        assert (cluster.name, cluster.provider.name) == ("helix", provider)
    assert (site / "new/report.md").read_text().startswith("# Import of old\n")
    assert not any(SECRET in file.read_text() for file in (site / "new").iterdir())


def test_existing_files_stay(cli: Cli, site: Path) -> None:
    (site / "helix").mkdir()
    (site / "helix/cluster.yaml").write_text("mine\n")
    done = cli("import", "--from", "old")
    assert (done.code, "helix/cluster.yaml already exists" in done.err) == (1, True)
    assert [file.name for file in (site / "helix").iterdir()] == ["cluster.yaml"]


def test_json_has_each_verdict(cli: Cli, site: Path) -> None:
    found = json.loads(cli("import", "--from", "old", "-o", "json").out)
    assert sum(found["counts"].values()) == len(found["verdicts"])
    assert found["files"] == ["helix/cluster.yaml", "helix/catalogue.yaml", "helix/report.md"]
    assert found["verdicts"][0] == {
        "file": "slurm.conf", "line": 2, "record": "", "key": "ClusterName", "value": "Helix", "verdict": "carried",
        "field": "name", "why": "under the name helix", "instead": "",
    }  # fmt: skip


def test_head_is_read_over_ssh(cli: Cli, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read_head(address: str) -> SiteFiles:
        asked.append(address)
        return SiteFiles(FILES, {"rest": "the connection ended"}, address)

    monkeypatch.setattr("headway.sdk.slurm_site.head.read_head", read_head)
    done = cli("import", "--from", "ssh://ops@head")
    assert (done.code, asked) == (0, ["ssh://ops@head"])
    assert "  not read: rest: the connection ended\n" in done.out


def test_folder_without_slurm_conf_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("import", "--from", str(tmp_path))
    assert done.code == 2
    assert "has no slurm.conf" in done.err
