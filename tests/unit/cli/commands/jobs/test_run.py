"""run, pipeline, shell and the commands below `job` send the right requests to the server and print the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli import ssh_files
from headway.cli.commands.jobs import shell as shell_command
from headway.schemas.jobs import ArrayOut
from headway.schemas.people import AccessOut
from headway.schemas.submissions import (
    BundleOut,
    GitIn,
    LineageOut,
    PipelineOut,
    PipelineRetryIn,
    RetryIn,
    RunOut,
    ScriptLine,
    StepOut,
    SubmitOut,
)
from tests.support.cli_fakes import Cli, cli, cluster, job

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


def test_run_dry_run_prints_script_lines_with_their_origin(cli: Cli, folder: Path) -> None:
    cli.api.on("jobs.create_run", made(0))
    done = cli("run", "lab", "--dry-run", "--", "python3", "x.py")
    assert done.out.splitlines() == [
        "#!/bin/bash", f"{'#SBATCH --nodes=2':<48} # --nodes", "# its arguments: x.py 'a b'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
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
    cli: Cli, folder: Path, words: list[str], said: str
) -> None:
    done = cli(*words)
    assert done.code != 0
    assert said in done.err


def test_run_reports_all_wrong_flags_at_once(cli: Cli) -> None:
    done = cli("run", "lab", "--no-files", "--nodes", "0", "--gpus", "-1", "--", "a")
    assert "--nodes" in done.err
    assert "--gpus" in done.err


def test_job_and_job_show_print_array_task_counts(cli: Cli) -> None:
    # The record under the array's number is its last task's, which has ended well.
    last = job(12, array_job_id=12, array_task="9", state="COMPLETED", exit_code=0)
    cli.api.on("jobs.get", last).on("clusters.get", cluster("lab"))
    cli.api.on("jobs.tasks", ArrayOut(total=10, done=7, failed=1, running=1, pending=1, failed_tasks="3"))
    for words in (("job", "lab", "12"), ("job", "show", "lab", "12")):
        done = cli(*words)
        assert "7 of 10 done, 1 failed, 1 running, 1 waiting; failed: 3" in done.out
        assert "state      RUNNING\n" in done.out
        assert "lab-1-1" not in done.out
    cli.api.on("jobs.tasks", ArrayOut(total=10, done=9, failed=1, failed_tasks="3"))
    assert "state      FAILED\n" in cli("job", "lab", "12").out
    assert cli("job", "-o", "json", "lab", "12").code == 0


def test_job_retry_and_rerun_resubmit_and_pass_secrets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s")
    out = SubmitOut(job_id=13, cluster="lab", user="alice", workdir="/w")
    cli.api.on("jobs.retry", out).on("jobs.rerun", out)
    assert cli("job", "retry", "lab", "12", "--failed").out == "Submitted batch job 13 on lab as alice in /w\n"
    cli("job", "rerun", "lab", "12", "--env", "HF_TOKEN")
    ((args, _),) = cli.api.named("jobs.rerun")
    assert args == ("lab", 12, RetryIn(env={"HF_TOKEN": "s"}))


def test_logs_accepts_a_task_id_or_the_task_option(cli: Cli) -> None:
    cli.api.on("jobs.log", lambda *_, **__: iter([b"x"]))
    cli("logs", "lab", "12_3")
    cli("logs", "lab", "12", "--task", "3")
    assert [kwargs["task"] for _, kwargs in cli.api.named("jobs.log")] == ["3", "3"]
    assert {args for args, _ in cli.api.named("jobs.log")} == {("lab", 12)}


def test_job_show_prints_lineage(cli: Cli) -> None:
    found = LineageOut(
        job_id=12, cluster="lab", submitted_at=1.0, person="ann", user="ann", kind="rerun", parent=7, script="#!/bin/sh\nx\n",
        git=GitIn(commit="c" * 40, branch="main", dirty=True), env={"HF_TOKEN": "********"},
    )  # fmt: skip
    cli.api.on("jobs.lineage", found)
    out = cli("job", "show", "lab", "12", "--lineage").out
    for part in ("a rerun of 7", "cccccccccccc (main), with uncommitted changes", "HF_TOKEN=********", "  #!/bin/sh"):
        assert part in out


def test_pipeline_run_prints_steps_and_retry_sends_steps(cli: Cli, folder: Path) -> None:
    (folder / "p.yaml").write_text("name: p\nsteps: {a: {run: true}}\n")
    step = StepOut(name="a", job_id=5, state="FAILED", why="the program was not found", runs=2)
    out = PipelineOut(
        id="p-1",
        cluster="lab",
        name="p",
        person="a",
        user="a",
        created_at=0,
        workdir="/w",
        state="failed",
        steps=[step],
    )
    cli.api.on("clusters.only_name", "lab").on("pipelines.start", out).on("bundles.exists", True).on(
        "pipelines.retry", out
    )
    shown = cli("pipeline", "run", "p.yaml").out
    assert "p (p-1) on lab as a: failed" in shown
    assert "the program was not found" in shown
    cli("pipeline", "retry", "p", "--step", "a")
    ((args, _),) = cli.api.named("pipelines.retry")
    assert args == ("lab", "p", PipelineRetryIn(steps=["a"]))


def test_shell_runs_srun_over_ssh(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(shell_command, "exec_program", lambda argv, _: became.append(argv))
    monkeypatch.setattr(ssh_files, "write_ssh_config", lambda _: tmp_path / "config")
    cli.api.on(
        "clusters.ssh_access", AccessOut(cluster="lab", user="a", head="lab-head", address="10.0.0.1", host_keys=[])
    )
    cli("shell", "lab", "--gpus", "1", "--", "echo", "a b; id")
    # On one node: --gpus=9 alone would be given nine GPUs of two.
    step = "srun --job-name=shell --nodes=1 --ntasks=1 --gpus-per-node=1 echo 'a b; id'"
    assert became == [["ssh", "-F", str(tmp_path / "config"), "lab", step]]
