"""run uploads the folder and sends its request; commands about jobs refuse wrong words."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.schemas.submission.bundles import BundleOut
from headway.schemas.submission.run_request import RunOut, ScriptLine
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def made(number: int = 12) -> RunOut:
    lines = [ScriptLine(text="#!/bin/bash"), ScriptLine(text="#SBATCH --nodes=2", origin="--nodes")]
    return RunOut(job_id=number, cluster="lab", user="alice", workdir="/scratch/alice/runs/x-1", script=lines,
                    script_args=["x.py", "a b"])  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("print(1)\n")
    return tmp_path


def test_run_uploads_the_folder_once_and_sends_words_unchanged(cli: Cli, folder: Path) -> None:
    there: set[str] = set()

    def keep(_: str, digest: str, archive: bytes, **__: str) -> BundleOut:
        there.add(digest)
        assert archive
        return BundleOut(digest=digest, present=True)

    cli.api.on("clusters.only_name", "lab").on("jobs.create_run", made())
    cli.api.on("bundles.exists", lambda _, digest, **__: digest in there).on("bundles.upload", keep)
    done = cli(
        "run", "-N", "2", "--gpus", "8", "--after", "ok:7", "--env", "A=1=2", "--", "python3", "x.py", "--a b", "--"
    )
    assert done.code == 0, done.err
    assert done.out == "Submitted batch job 12 on lab as alice in /scratch/alice/runs/x-1\n"
    (((name, request), _),) = cli.api.named("jobs.create_run")
    assert (name, request.argv, request.nodes, request.gpus) == ("lab", ["python3", "x.py", "--a b", "--"], 2, 8)
    assert (request.after, request.env, request.bundle) == (["ok:7"], {"A": "1=2"}, there.pop())
    cli.api.on("bundles.exists", True)
    cli("run", "lab", "--", "true")
    assert len(cli.api.named("bundles.upload")) == 1


def test_run_prints_a_warning_on_standard_error(cli: Cli, folder: Path) -> None:
    cli.api.on("jobs.create_run", made().model_copy(update={"warning": "environment pytorch is still being built"}))
    done = cli("run", "lab", "--no-files", "--gpus", "8", "--", "true")
    assert "warning: environment pytorch is still being built\n" in done.err
    assert "warning" not in done.out


def test_run_dry_run_prints_script_lines_with_their_origin(cli: Cli, folder: Path) -> None:
    cli.api.on("jobs.create_run", made(0))
    done = cli("run", "lab", "--dry-run", "--", "python3", "x.py")
    assert done.out.splitlines() == [
        "#!/bin/bash", f"{'#SBATCH --nodes=2':<48} # --nodes", "# its arguments: x.py 'a b'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "lab"], "after --"),
        (["run", "lab", "--no-files", "--nodes", "0", "--launcher", "x", "--", "a"], "--launcher"),
        (["run", "lab", "--no-files", "--env", "NOT_SET_HERE", "--", "a"], "not set in this environment"),
        (["run", "lab", "--no-files", "--container-mounts", "/a:/b", "--", "a"], "needs an image"),
        (["pipeline", "run", "nothing.yaml"], "no such file"),
        (["job", "retry", "lab", "x"], "not a job id"),
        (["logs", "lab", "12", "--task", "x"], "is not a task number"),
    ],
)
def test_job_commands_refuse_wrong_words_before_any_request(
    cli: Cli, folder: Path, words: list[str], text: str
) -> None:
    done = cli(*words)
    assert done.code != 0
    assert text in done.err


def test_run_reports_all_wrong_flags_at_once(cli: Cli) -> None:
    done = cli("run", "lab", "--no-files", "--nodes", "0", "--gpus", "-1", "--", "a")
    assert "--nodes" in done.err
    assert "--gpus" in done.err
