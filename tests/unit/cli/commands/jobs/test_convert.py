"""convert prints the job on standard output and its losses on standard error; bad files are refused with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.convert.formats import Source
from tests.support.cli_fakes import Cli, cli
from tests.support.job_files import JOB_FILES

__all__ = ["cli"]  # a fixture


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.pbs").write_text(JOB_FILES[Source.PBS])
    Path("job.yaml").write_text(JOB_FILES[Source.SKYPILOT])


def test_result_is_on_standard_output_and_losses_are_on_standard_error(cli: Cli) -> None:
    done = cli("convert", "job.pbs")
    assert done.code == 0
    assert done.out.startswith("#!/bin/bash\n#SBATCH --job-name=heat\n")
    assert "line 9" in done.err
    assert "afterok" in done.err
    assert "-j oe" not in done.err
    assert done.err.splitlines()[-1] == "1 lost, 1 changed, 1 same (--all lists them); the rest is carried"
    assert cli.api.calls == []  # no server is needed


def test_all_also_lists_what_needs_no_line(cli: Cli) -> None:
    assert "-j oe" in cli("convert", "job.pbs", "--all").err


def test_result_is_written_to_a_file(cli: Cli) -> None:
    done = cli("convert", "job.yaml", "-o", "job.sbatch")
    assert (done.code, done.out) == (0, "")
    assert Path("job.sbatch").read_text().startswith("#!/bin/bash\n#SBATCH --job-name=finetune\n")
    missing = cli("convert", "job.yaml", "-o", "none/job.sbatch")
    assert missing.code == 1
    assert "none/job.sbatch: No such file or directory" in missing.err


def test_other_targets_and_images(cli: Cli) -> None:
    done = cli("convert", "job.pbs", "--to", "jobset", "--image", "example.org/a:1")
    assert "kind: JobSet\n" in done.out
    assert "image: example.org/a:1\n" in done.out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "kind: Deployment\n", ["a.yaml has 1 fault", "kind: Deployment is no job", "it reads Job"]),
        ("a.sh", "#!/bin/sh\ntrue\n", ["a.sh has 1 fault", "line 1", "--from pbs, lsf, sge or slurm"]),
        ("a.pbs", "#PBS -N a\n#$ -N a\n", ["lines of PBS and Grid Engine", "--from pbs or --from sge"]),
    ],
)
def test_refusals_have_exit_code_2(cli: Cli, name: str, text: str, words: list[str]) -> None:
    Path(name).write_text(text)
    done = cli("convert", name)
    assert (done.code, done.out) == (2, "")
    assert [word for word in words if word not in done.err] == []


def test_file_that_is_not_there(cli: Cli) -> None:
    done = cli("convert", "none.pbs")
    assert done.code == 5
    assert "none.pbs: No such file or directory" in done.err
