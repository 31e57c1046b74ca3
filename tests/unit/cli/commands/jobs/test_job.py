"""submit, queue, job, logs and cancel send the right requests and print the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import NotAllowed, NotFound, Unreachable
from headway.schemas.clusters import StatusOut
from headway.schemas.jobs import ArrayOut, ProgressOut
from headway.schemas.submissions import RetryIn, SubmitIn, SubmitOut
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
    ("content", "said"),
    [
        (b"", "empty"),
        (b"echo hi\n", "interpreter"),
        (b"\x7fELF\xff\xfe", "not a text file"),
        (b"#!/bin/sh\r\ntrue\r\n", "Windows line endings"),
        (b"#!/bin/sh\n" + b"#" * (4 << 20), "larger than Slurm accepts"),
    ],
)
def test_submit_refuses_scripts_that_sbatch_would_refuse(cli: Cli, tmp_path: Path, content: bytes, said: str) -> None:
    accepts(cli)
    (tmp_path / "x.sh").write_bytes(content)
    done = cli("submit", str(tmp_path / "x.sh"))
    assert done.code == 1
    assert said in done.err
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


# --- reading


def test_queue_orders_jobs_by_state_and_shows_reasons(cli: Cli) -> None:
    jobs = [
        job(3, state="PENDING", reason="Resources", nodes=[], nodelist="", elapsed_s=0),
        job(2, progress=ProgressOut(step=120, loss=1.8734), restarts=1),
        job(1, state="FAILED", exit_code=2),
    ]
    cli.api.on("clusters.only_name", "lab").on("jobs.list", jobs).on("clusters.get", cluster())
    done = cli("queue")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["2", "3", "1"]
    assert "RUNNING x2" in lines[1]
    assert "1.873" in lines[1]
    assert "lab-1-[1-2]" in lines[1]
    assert "4:07" in lines[1]
    assert lines[2].endswith("(Resources)")
    assert lines[3].endswith("exit code 2")
    assert "SIMULATED" in lines[4]


@pytest.mark.parametrize("state", ["CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT"])
def test_queue_shows_a_job_that_holds_nodes_before_waiting_ones_with_its_nodes(cli: Cli, state: str) -> None:
    waits = job(11, state="PENDING", nodes=[], nodelist="", reason="Resources")
    holds = job(12, state=state, reason="Prolog")
    cli.api.on("clusters.get", cluster("lab")).on("jobs.list", [waits, holds])
    _, first, second, *_ = cli("queue", "lab").out.splitlines()
    assert first.split()[0] == "12"
    assert first.endswith("lab-1-[1-2]")
    assert second.split()[0] == "11"


@pytest.mark.parametrize("state", ["STOPPED", "RESIZING", "SUSPENDED"])
def test_job_that_holds_nodes_has_not_ended(cli: Cli, state: str) -> None:
    cli.api.on("clusters.get", cluster("lab")).on("jobs.get", job(12, state=state, start_time=1000, end_time=9000))
    shown = cli("job", "lab", "12").out
    assert "started" in shown
    assert "ended" not in shown


def test_requeued_job_that_is_held_shows_when_it_may_start(cli: Cli) -> None:
    cli.api.on("clusters.get", cluster("lab")).on("jobs.get", job(12, state="REQUEUE_HOLD", start_time=1000))
    shown = cli("job", "lab", "12").out
    assert "expected" in shown
    assert "started" not in shown


def test_queue_sends_its_filters_to_the_server(cli: Cli) -> None:
    cli.api.on("jobs.list", []).on("clusters.get", cluster())
    done = cli("queue", "lab", "-a", "-u", "bob", "-t", "running")
    assert done.out == "no jobs on lab\n"
    assert cli.api.named("jobs.list") == [(("lab",), {"all": True, "user": "bob", "state": "RUNNING"})]


def test_queue_does_not_call_real_gpus_simulated(cli: Cli) -> None:
    cli.api.on("jobs.list", [job()]).on("clusters.get", cluster(simulated_gpus=False))
    assert "SIMULATED" not in cli("queue", "lab").out


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("command", ["queue", "nodes"])
def test_queue_and_nodes_warn_about_stale_data(cli: Cli, command: str, output: str) -> None:
    old = cluster(stale="no SSH to lab-head")
    cli.api.on("jobs.list", []).on("clusters.get", old).on(
        "clusters.status", StatusOut(cluster=old, checks=[], nodes=[])
    )
    done = cli(command, "lab", "-o", output)
    assert done.code == 0
    assert output == "table" or json.loads(done.out) == []
    assert "this data is old: no SSH to lab-head; headway status lab" in done.err


def test_queue_watch_requires_a_terminal(cli: Cli) -> None:
    assert cli("queue", "lab", "-w").code == 1


def test_queue_watch_draws_until_interrupt_and_restores_the_screen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.api.on("jobs.list", [job()]).on("clusters.get", cluster())

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.cli.commands.jobs.queue.time.sleep", interrupt)
    done = cli("queue", "lab", "-w", terminal=True)
    assert done.code == 130
    assert "train_ddp" in done.out
    assert done.out.endswith("\x1b[?25h\x1b[?1049l")


def test_queue_escapes_control_characters_in_job_names(cli: Cli) -> None:
    cli.api.on("jobs.list", [job(name="x\x1b[2J\ny")]).on("clusters.get", cluster())
    done = cli("queue", "lab", terminal=True)
    assert "\x1b[2J" not in done.out
    assert "x?[2J?y" in done.out


def test_job_prints_all_details_and_progress(cli: Cli) -> None:
    found = job(
        qos="vision", stdout="/home/alice/o", stderr="/home/alice/o", submit_time=1,
        progress=ProgressOut(step=9, loss=1.5, tokens_per_s=12345.6, series=[(1, 3.0), (5, 2.0), (9, 1.5)]),
    )  # fmt: skip
    cli.api.on("jobs.get", found).on("clusters.get", cluster())
    out = cli("job", "lab", "12").out
    for part in (
        "12 train_ddp",
        "alice (vision)",
        "2: lab-1-[1-2]",
        "16 SIMULATED",
        "4:07 of 1-00:00:00",
        "1.5000 at step 9, 12,346 tokens/s",
        "█",
    ):
        assert part in out
    assert "errors" not in out
    assert json.loads(cli("job", "lab", "12", "-o", "json").out)["id"] == 12


def test_logs_writes_the_log_bytes_unchanged(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("jobs.log", lambda *_, **__: iter([b"a\xff", b"\r\nb"]))
    assert cli("logs", "-f", "12").raw == b"a\xff\r\nb"
    assert cli.api.named("jobs.log") == [(("lab", 12), {"follow": True, "err": False, "task": ""})]


@pytest.mark.parametrize("words", [("lab", "-f", "12"), ("-f", "lab", "12"), ("lab", "12", "-f")])
def test_logs_accepts_cluster_job_and_flags_in_any_order(cli: Cli, words: tuple[str, ...]) -> None:
    cli.api.on("jobs.log", lambda *_, **__: iter(()))
    cli("logs", *words)
    assert cli.api.named("jobs.log") == [(("lab", 12), {"follow": True, "err": False, "task": ""})]


def test_interrupted_logs_says_how_to_follow_the_job_again(cli: Cli) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[bytes]:
        yield b"x"
        raise KeyboardInterrupt

    cli.api.on("jobs.log", interrupted)
    done = cli("logs", "lab", "-f", "12")
    assert done.code == 130
    assert "job 12 continues; follow it again: headway logs lab -f 12" in done.err


def test_cancel_continues_after_a_failure_and_exits_with_its_code(cli: Cli) -> None:
    def answer(_: str, number: int, *, task: str) -> None:
        assert not task
        if number == 12:
            raise NotAllowed("job 12 is bob's")

    cli.api.on("jobs.cancel", answer)
    done = cli("cancel", "lab", "12", "13")
    assert done.code == 4
    assert done.out == "cancelled 13 on lab\n"
    assert "job 12 is bob's" in done.err


def test_job_commands_accept_an_array_task_id(cli: Cli) -> None:
    tasks = [job(40 + i, array_job_id=40, array_task=str(i)) for i in range(4)]

    def one(_: str, number: int, task: str = "") -> object:
        if task == "9":
            raise NotFound("job 40 on lab has no task 9")
        return job(number, array_job_id=40, array_task=task, state="PENDING") if task == "8" else tasks[int(task)]

    cli.api.on("clusters.only_name", "lab").on("jobs.cancel", None).on("jobs.get", one)
    assert cli("cancel", "40_3").out == "cancelled 40_3 on lab\n"
    assert cli.api.named("jobs.cancel") == [(("lab", 40), {"task": "3"})]
    assert cli("job", "40_9").code == NotFound.exit_code
    shown = cli("job", "40_8", "-o", "json")  # waits with others: its array's number is all that Slurm has given it
    assert json.loads(shown.out)["array_task"] == "8"
    done = SubmitOut(job_id=50, cluster="lab", user="alice", workdir="/w")
    cli.api.on("jobs.retry", done).on("jobs.rerun", done)
    for how in ("retry", "rerun"):
        assert cli("job", how, "40_8").code == 0
        assert cli.api.named(f"jobs.{how}") == [(("lab", 40, RetryIn(task="8")), {})]  # not all of it
