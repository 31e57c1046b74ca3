"""import writes a valid file, a catalogue and a report, never over an existing file, and prints a summary."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.schemas.submission.exec_commands import ExecOut
from headway.sdk.cluster_file import load_document
from headway.slurm_import.importer import SiteFiles
from tests.support.cli_fakes import Cli, cli
from tests.support.slurm_sites import FILES, SECRET
from tests.support.slurm_states import CLUSTER, SITE

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
    assert first == "read 13 files of old: 6 nodes, 3 partitions, 4 teams, 3 users"
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
    asked: list[tuple[str, bytes]] = []

    def read_head(address: str, settings: bytes) -> SiteFiles:
        asked.append((address, settings))
        return SiteFiles(FILES, {"rest": "the connection ended"}, address)

    monkeypatch.setattr("headway.sdk.slurm_site.head.read_head", read_head)
    done = cli("import", "--from", "ssh://ops@head")
    assert (done.code, asked) == (0, [("ssh://ops@head", b"")])
    assert "  not read: rest: the connection ended\n" in done.out


def test_scripts_are_written_on_request(cli: Cli, site: Path) -> None:
    with (site / "old/slurm.conf").open("a") as conf:
        conf.write("Prolog=/etc/slurm/start.sh\n")
    (site / "old/start.sh").write_text("#!/bin/sh\nexit 0\n")
    done = cli("import", "--from", "old", "--with-scripts")
    assert (done.code, "1 script of the site copied: prolog.d/start.sh" in done.out) == (0, True)
    assert (site / "helix/prolog.d/start.sh").read_text() == "#!/bin/sh\nexit 0\n"
    assert "prolog.d/start.sh" in (site / "helix/cluster.yaml").read_text()


def test_script_that_exists_stays_and_nothing_is_written(cli: Cli, site: Path) -> None:
    with (site / "old/slurm.conf").open("a") as conf:
        conf.write("Prolog=/etc/slurm/start.sh\n")
    (site / "old/start.sh").write_text("#!/bin/sh\nexit 0\n")
    (site / "helix/prolog.d").mkdir(parents=True)
    (site / "helix/prolog.d/start.sh").write_text("mine\n")
    done = cli("import", "--from", "old", "--with-scripts")
    assert (done.code, "helix/prolog.d/start.sh already exists" in done.err) == (1, True)
    assert [file.name for file in (site / "helix").iterdir()] == ["prolog.d"]


def test_folder_without_slurm_conf_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("import", "--from", str(tmp_path))
    assert done.code == 2
    assert "has no slurm.conf" in done.err


def printed(texts: dict[str, str], end: str = "END\n") -> ExecOut:
    """Returns what read_slurm_state.sh prints on the head of a cluster."""
    parts = [f"FILE {len(text.encode())} {path}\n{text}\n" for path, text in texts.items()]
    return ExecOut(code=0, stdout_b64=base64.b64encode("".join([*parts, end]).encode()).decode())


@pytest.fixture
def compared(site: Path) -> Path:
    """A folder with the site's files and what its Slurm says."""
    for name, text in SITE.items():
        (site / "old" / name).write_text(text)
    (site / "old/qos.txt").write_text(SITE["qos.txt"])
    return site


def test_comparison_names_the_reason_of_each_difference(cli: Cli, compared: Path) -> None:
    cli.api.on("commands.exec", printed(CLUSTER))
    done = cli("import", "--from", "old", "--compare", "helix")
    assert done.code == 0, done.out
    assert "cluster: helix, Slurm 24.11.5, a rehearsal with one node of each group" in done.out
    assert "NOT EXPLAINED" not in done.out
    assert done.out.splitlines()[-1].endswith("differences with a reason, 0 without")
    assert not (compared / "helix").exists()


def test_comparison_without_a_reason_fails(cli: Cli, compared: Path) -> None:
    config = CLUSTER["scontrol-config.txt"].replace("KillWait                = 30", "KillWait                = 60")
    cli.api.on("commands.exec", printed({**CLUSTER, "scontrol-config.txt": config}))
    assert "NOT EXPLAINED" in (done := cli("import", "--from", "old", "--compare", "helix")).out
    assert done.code == 1
    done = cli("import", "--from", "old", "--compare", "helix", "-o", "json")
    found = json.loads(done.out)
    assert (done.code, found["unexplained"], found["rehearsal"]) == (1, 1, True)
    assert found["site"] == {"source": "old", "slurm": "22.05.8"}
    assert {"section": "config", "name": "", "key": "KillWait", "old": "30", "new": "60", "reason": ""} in found[
        "differences"
    ]


def test_comparison_of_half_an_answer_is_refused(cli: Cli, compared: Path) -> None:
    cli.api.on("commands.exec", printed(CLUSTER, end=""))
    done = cli("import", "--from", "old", "--compare", "helix")
    assert "helix did not say everything" in done.err


def test_comparison_writes_no_files(cli: Cli, site: Path) -> None:
    done = cli("import", "--from", "old", "--compare", "helix", "--rehearse")
    assert (done.code, "--compare writes no files" in done.err) == (2, True)


def test_comparison_that_lacks_a_part_fails(cli: Cli, compared: Path) -> None:
    texts = {path: text for path, text in CLUSTER.items() if path != "sshare.txt"}
    cli.api.on("commands.exec", printed(texts, end="FAIL sshare.txt\nsshare: error: no controller\nEND\n"))
    done = cli("import", "--from", "old", "--compare", "helix")
    assert (done.code, "not compared: sshare.txt of the cluster: sshare: error: no controller" in done.out) == (1, True)
