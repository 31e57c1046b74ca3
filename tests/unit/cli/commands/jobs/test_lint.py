"""lint prints findings with their lines and corrections, corrects files, and asks a cluster with --on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.schemas.base import FaultOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut, LintEditOut, LintFindingOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture
GOOD = "#!/bin/bash\n#SBATCH --time=10\nsrun hostname\n"
BAD = "#!/bin/bash\n#SBATCH --time=10\ncd /scratch\n#SBATCH --nodes=2\nexport NCCL_DEBUG=INFO\nsrun hostname\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.sbatch").write_text(GOOD)
    Path("bad.sbatch").write_text(BAD)
    return tmp_path


def test_findings_have_line_reason_and_correction(cli: Cli, folder: Path) -> None:
    done = cli("lint", "bad.sbatch", "good.sbatch")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].startswith("bad.sbatch:4: warning: sbatch ignores this line, because line 3 is a command already.")
    assert lines[2:4] == ["    + #SBATCH --nodes=2", "    - #SBATCH --nodes=2"]
    assert "bad.sbatch:5: note: NCCL_DEBUG=INFO" in done.out
    assert lines[-1] == "1 warning, 1 note; 2 can be corrected: --fix"
    assert cli.api.calls == []  # no server is needed


def test_script_without_findings(cli: Cli, folder: Path) -> None:
    done = cli("lint", "good.sbatch")
    assert (done.code, done.out) == (0, "no findings in 1 script\n")


def test_fix_writes_the_corrected_script_and_shows_the_change(cli: Cli, folder: Path) -> None:
    done = cli("lint", "bad.sbatch", "--fix")
    assert done.code == 0
    assert "+#SBATCH --nodes=2\n" in done.out
    assert done.out.endswith("no findings in 1 script\n")
    assert Path("bad.sbatch").read_text() == (
        "#!/bin/bash\n#SBATCH --time=10\n#SBATCH --nodes=2\ncd /scratch\nexport NCCL_DEBUG=WARN\nsrun hostname\n"
    )


def test_windows_line_ends_are_kept_until_they_are_corrected(cli: Cli, folder: Path) -> None:
    Path("dos.sbatch").write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert "dos.sbatch:1: error: Lines end in CR LF" in cli("lint", "dos.sbatch").out
    assert cli("lint", "dos.sbatch", "--fix").code == 0
    assert Path("dos.sbatch").read_bytes() == GOOD.encode()


def test_json_lists_all_files(cli: Cli, folder: Path) -> None:
    done = cli("lint", "bad.sbatch", "good.sbatch", "-o", "json")
    rows = json.loads(done.out)
    assert [(row["file"], [one["rule"] for one in row["findings"]]) for row in rows] == [
        ("bad.sbatch", ["late-directive", "verbose-nccl"]),
        ("good.sbatch", []),
    ]


def test_file_that_is_missing_or_no_text(cli: Cli, folder: Path) -> None:
    assert "none.sbatch: No such file or directory" in cli("lint", "none.sbatch").err
    Path("program").write_bytes(b"\x7fELF\xff")
    assert "program: not a text file" in cli("lint", "program").err


def test_cluster_adds_what_it_knows(cli: Cli, folder: Path) -> None:
    edit = LintEditOut(first=2, last=2, lines=["#SBATCH --time=5"])
    finding = LintFindingOut(rule="no-folder", level="warning", line=3, message="m", why="w", edits=[edit])
    fault = FaultOut(path="time", message="the job requests 10 minutes; train allows 5", hint="request less")

    def check(name: str, request: CheckJobIn) -> CheckJobOut:
        assert (name, request.submit is not None) == ("lab", True)
        done = request.submit is not None and "--time=5" in (request.submit.script or "")
        return CheckJobOut() if done else CheckJobOut(findings=[finding], faults=[fault])

    cli.api.on("jobs.check", check)
    done = cli("lint", "good.sbatch", "--on", "lab")
    assert done.code == 1
    assert "good.sbatch: error: time: the job requests 10 minutes; train allows 5 (request less)" in done.out
    assert done.out.endswith("1 error, 1 warning; 1 can be corrected: --fix\n")
    assert cli("lint", "good.sbatch", "--on", "lab", "--fix").code == 0
    assert "--time=5" in Path("good.sbatch").read_text()
