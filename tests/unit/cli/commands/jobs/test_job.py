"""job show, retry and rerun send the right requests and print the answers."""

from __future__ import annotations

import json

import pytest

from headway.errors import NotFound
from headway.schemas.jobs import ArrayOut, JobStacksOut, ProgressOut, RankStackOut
from headway.schemas.lineage.lineage import LineageOut
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.reruns import ResumeIn, RetryIn
from headway.schemas.submission.submit_request import SubmitOut
from headway.schemas.training_metrics import (
    TrainingChartsOut,
    TrainingMetricOut,
    TrainingMetricsOut,
    TrainingSeriesOut,
)
from tests.support.cli_fakes import Cli, cli, cluster, job

__all__ = ["cli"]  # a fixture


def test_stacks_are_printed_by_place_with_the_verdict_first(cli: Cli) -> None:
    waits, loads = ["all_reduce (c10d.py:9)", "train (t.py:8)"], ["load (t.py:3)\x1b[31m", "train (t.py:7)"]
    stacks = [RankStackOut(rank=n, node=f"lab-1-{n // 4 + 1}", frames=loads if n == 5 else waits) for n in range(8)]
    found = JobStacksOut(stacks=stacks, verdict="rank 5 is in load", errors={"lab-1-3": "no connection"})
    cli.api.on("jobs.stacks", found)
    done = cli("job", "stacks", "lab", "12")
    assert done.out.splitlines() == [
        "rank 5 is in load",
        "rank 5 on lab-1-2",
        "    load (t.py:3)?[31m",
        "    train (t.py:7)",
        "rank 0-4,6-7 on lab-1-[1-2]",
        "    all_reduce (c10d.py:9)",
        "    train (t.py:8)",
    ]
    assert "lab-1-3: no connection" in done.err


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


def test_job_resume_names_the_step_of_a_checkpoint(cli: Cli) -> None:
    cli.api.on("jobs.resume", SubmitOut(job_id=13, cluster="lab", user="alice", workdir="/w"))
    done = cli("job", "resume", "lab", "12_3", "--from", "step:4000")
    assert done.out == "Submitted batch job 13 on lab as alice in /w\n"
    assert cli.api.named("jobs.resume") == [(("lab", 12, ResumeIn(task="3", step=4000)), {})]
    for wrong in ("4000", "step:", "step:-1", "latest"):
        refused = cli("job", "resume", "lab", "12", "--from", wrong)
        assert (refused.code, "such as --from step:4000" in refused.err) == (2, True)


def test_job_show_prints_lineage(cli: Cli) -> None:
    found = LineageOut(
        job_id=12, cluster="lab", submitted_at=1.0, person="ann", user="ann", kind="rerun", parent=7, script="#!/bin/sh\nx\n",
        git=GitIn(commit="c" * 40, branch="main", dirty=True), env={"HF_TOKEN": "********"},
    )  # fmt: skip
    cli.api.on("jobs.lineage", found)
    out = cli("job", "show", "lab", "12", "--lineage").out
    for part in ("a rerun of 7", "cccccccccccc (main), with uncommitted changes", "HF_TOKEN=********", "  #!/bin/sh"):
        assert part in out


def _metrics() -> TrainingMetricsOut:
    return TrainingMetricsOut(
        job=12, dropped=3, note="a job may have 1,000 metrics",
        metrics=[
            TrainingMetricOut(name="loss", points=3, step=30, value=None, text="nan", at=9.0),
            TrainingMetricOut(name="lr", points=1, step=10, value=0.1, text="0.1", at=3.0),
        ],
    )  # fmt: skip


def test_metrics_are_printed_with_range_and_curve(cli: Cli) -> None:
    series = TrainingSeriesOut(
        name="loss", points=3, steps=[10, 20, 30], times=[1.0, 2.0, 3.0], values=[2.0, 1.5, None], lows=[1.0, 1.5, None],
        highs=[3.0, 1.5, None], not_finite=[(30, "nan")],
    )  # fmt: skip
    cli.api.on("jobs.metrics", _metrics()).on("jobs.metric_series", TrainingChartsOut(job=12, series=[series]))
    done = cli("job", "metrics", "lab", "12", "-m", "loss")
    head, row = done.out.splitlines()
    assert head.split() == ["METRIC", "STEP", "VALUE", "LOWEST", "HIGHEST", "POINTS", "CURVE"]
    assert row.split() == ["loss", "30", "nan", "1", "3", "3", "█▁"]
    assert done.err == "3 reports are not kept, or not completely: a job may have 1,000 metrics\n"
    assert json.loads(cli("job", "metrics", "lab", "12", "-o", "json").out)["metrics"][0]["text"] == "nan"
    assert json.loads(cli("job", "metrics", "lab", "12", "-m", "loss", "-o", "json").out)["series"][0]["points"] == 3
    cli("job", "metrics", "lab", "12_4")
    assert cli.api.named("jobs.metric_series")[-1] == (("lab", 12, ["loss", "lr"]), {"task": "4"})


def test_metrics_as_csv_are_passed_on(cli: Cli) -> None:
    cli.api.on("jobs.metrics_csv", [b"metric,run\r\n", b"loss,0\r\n"])
    assert cli("job", "metrics", "lab", "12", "--csv", "-m", "loss").out.splitlines() == ["metric,run", "loss,0"]
    assert cli.api.named("jobs.metrics_csv") == [(("lab", 12, ["loss"]), {"task": ""})]


def test_job_without_metrics_says_how_to_report_them(cli: Cli) -> None:
    cli.api.on("jobs.metrics", TrainingMetricsOut(job=12))
    assert "headway_train.report" in cli("job", "metrics", "lab", "12").out


def test_job_shows_the_newest_value_of_each_metric(cli: Cli) -> None:
    found = job(progress=ProgressOut(step=9, loss=1.5, more={"lr": 0.2}), metrics=_metrics().metrics)
    cli.api.on("jobs.get", found).on("clusters.get", cluster())
    assert "reports    loss nan, lr 0.1" in cli("job", "lab", "12").out
