"""submit sends the script and its flags, and waits for the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.errors import Unreachable
from headway.schemas.jobs import ArrayOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from tests.support.cli_fakes import Cli, cli, cluster, job

__all__ = ["cli"]  # a fixture


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("train.sbatch").write_text("#!/bin/bash\nsrun hostname\n")
    Path("lab").write_text("#!/bin/sh\n")
    return "train.sbatch"


def accepts(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("clusters.list", [cluster("lab")])
    cli.api.on("jobs.sbatch", SubmitOut(job_id=12, cluster="lab", user="alice", workdir="/home/alice"))


def sent(cli: Cli) -> tuple[str, SubmitIn]:
    (((name, request), _),) = cli.api.named("jobs.sbatch")
    return name, request


def test_submit_prints_job_id_cluster_user_and_workdir(cli: Cli, script: str) -> None:
    accepts(cli)
    done = cli("submit", "-N", "2", "--gpus-per-node=8", script, "--epochs", "3")
    assert (done.code, done.out) == (0, "Submitted batch job 12 on lab as alice in /home/alice\n")
    name, request = sent(cli)
    assert name == "lab"
    assert request == SubmitIn(
        args=["-N", "2", "--gpus-per-node=8"], script="#!/bin/bash\nsrun hostname\n", script_name="train.sbatch",
        script_args=["--epochs", "3"],
    )  # fmt: skip


def test_submit_accepts_cluster_as_chdir_and_parsable(cli: Cli, script: str) -> None:
    accepts(cli)
    done = cli("submit", "lab", "--as", "bob", "--chdir=/scratch/x", "--parsable", script)
    assert done.out == "12\n"
    name, request = sent(cli)
    assert (name, request.user, request.chdir, request.args) == ("lab", "bob", "/scratch/x", [])


def test_submit_takes_a_known_cluster_name_as_the_cluster(cli: Cli, script: str) -> None:
    accepts(cli)
    cli("submit", "lab", script)
    assert sent(cli)[1].script_name == script


def test_submit_takes_an_existing_file_as_the_script(cli: Cli, script: str) -> None:
    accepts(cli)
    cli.api.on("clusters.list", [cluster("other")])
    cli("submit", "lab", "x")
    assert sent(cli)[1].script_name == "lab"
    assert sent(cli)[1].script_args == ["x"]


def test_submit_refuses_a_word_that_is_neither_cluster_nor_script(cli: Cli, script: str) -> None:
    accepts(cli)
    done = cli("submit", "nope", script)
    assert done.code == 5
    assert done.err == "error: nope is neither a cluster nor a script on this machine\n  clusters: lab\n"


def test_submit_supports_wrap_and_json(cli: Cli) -> None:
    accepts(cli)
    done = cli("submit", "--json", "--wrap", "hostname")
    assert json.loads(done.out)["job_id"] == 12
    request = sent(cli)[1]
    assert (request.args, request.script) == (["--wrap", "hostname"], None)


def test_submit_reads_the_script_from_stdin(cli: Cli) -> None:
    accepts(cli)
    cli("submit", "-N1", stdin=b"#!/bin/sh\ntrue\n")
    assert sent(cli)[1].script == "#!/bin/sh\ntrue\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"echo hi\n", "interpreter"),
        (b"\x7fELF\xff\xfe", "not a text file"),
        (b"#!/bin/sh\r\ntrue\r\n", "Windows line endings"),
        (b"#!/bin/sh\n" + b"#" * (4 << 20), "larger than Slurm accepts"),
    ],
)
def test_submit_refuses_scripts_that_sbatch_would_refuse(cli: Cli, tmp_path: Path, content: bytes, text: str) -> None:
    accepts(cli)
    (tmp_path / "x.sh").write_bytes(content)
    done = cli("submit", str(tmp_path / "x.sh"))
    assert done.code == 1
    assert text in done.err
    assert not cli.api.named("jobs.sbatch")


def test_submit_of_a_missing_script_suggests_headway_exec(cli: Cli) -> None:
    accepts(cli)
    done = cli("submit", "./none.sh")
    assert done.code == 5
    assert "headway exec lab -u USER -- sbatch ./none.sh" in done.err


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("lab", "--help"), ("-N", "2", "--help")])
def test_submit_help_needs_no_server(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli("submit", *words)
    assert done.code == 0
    assert done.out.startswith("Usage: headway submit [CLUSTER] [SBATCH FLAGS] SCRIPT [ARGS]\n")
    assert "--json" in done.out


def test_submit_wait_exits_with_the_exit_code_of_the_job(
    cli: Cli, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepts(cli)
    monkeypatch.setattr("time.sleep", lambda _: None)
    states = iter([job(state="PENDING"), job(), job(state="FAILED", exit_code=3)])
    cli.api.on("jobs.get", lambda *_: next(states))
    done = cli("submit", "--wait", script)
    assert done.code == 3
    assert "job 12: FAILED" in done.err


def test_submit_wait_continues_after_a_broken_connection(
    cli: Cli, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `submit --wait x || submit x` would have the job twice."""
    accepts(cli)
    monkeypatch.setattr("time.sleep", lambda _: None)
    left = [None, None, job(), job(state="COMPLETED")]

    def status(*_: object) -> object:
        found = left.pop(0)
        if found is None:
            raise Unreachable("the connection broke")
        return found

    cli.api.on("jobs.get", status).on("jobs.reconnect", None)
    done = cli("submit", "--wait", script)
    assert done.code == 0
    assert done.err.count("the connection broke; job 12 continues; still waiting for it") == 1


def test_submit_wait_fails_if_one_array_task_failed(cli: Cli, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accepts(cli)
    monkeypatch.setattr("time.sleep", lambda _: None)
    counts = iter([ArrayOut(total=4, done=3, running=1), ArrayOut(total=4, done=3, failed=1, failed_tasks="2")])
    cli.api.on("jobs.get", job(array_job_id=12, array_task="3", state="COMPLETED")).on(
        "jobs.tasks", lambda *_: next(counts)
    )
    done = cli("submit", "--wait", script)
    assert done.code == 1
    assert "job 12: FAILED; failed: 2" in done.err
