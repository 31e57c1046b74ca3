"""Array tasks are counted, found and retried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.jobs.view.array_tasks import array_out, incomplete_tasks, known_array_out, tasks_of, with_array
from headway.schemas.submission.submit_request import SubmitIn
from tests.support.clusters import builders


def test_array_counts_its_tasks_by_state() -> None:
    words = ["COMPLETED", "RUNNING", "PENDING", "FAILED", "TIMEOUT", "CANCELLED", "COMPLETED"]
    told = array_out({str(n): word for n, word in enumerate(words)})
    assert (told.total, told.done, told.running, told.pending, told.failed, told.cancelled) == (7, 2, 1, 1, 2, 1)
    assert told.failed_tasks == "3-4"


def test_retry_repeats_failed_and_cancelled_tasks() -> None:
    assert incomplete_tasks({"0": "COMPLETED", "1": "FAILED", "2": "CANCELLED", "3": "RUNNING"}) == "1-2"


@pytest.mark.parametrize(
    ("record", "number"), [("0-9", 10), ("[0-9%2]", 10), ("3,7-9", 4), ("0-8:2%4", 5), ("7", 1), ("", 1)]
)
def test_record_of_several_waiting_tasks_counts_as_all_of_them(record: str, number: int) -> None:
    waiting = replace(builders.job(40, "PENDING"), array_job_id=40, array_task=record)
    ended = replace(builders.job(41, "COMPLETED"), array_job_id=40, array_task="99")
    told = known_array_out([waiting, ended])
    assert (told.total, told.pending, told.done, told.failed) == (number + 1, number, 1, 0)


def test_running_and_pending_tasks_are_not_failed() -> None:
    assert incomplete_tasks({str(n): word for n, word in enumerate(sorted(RUNNING | WAITING))}) == ""


@pytest.mark.parametrize("flags", [["--array=0-9"], ["--array", "0-9"], ["-a", "0-9"], ["-a0-9"], ["--arr=0-9"], []])
def test_retry_replaces_the_array_option_with_its_tasks(flags: list[str]) -> None:
    assert with_array(SubmitIn(args=["-N1", *flags, "-J", "x"]), "3,5").args == ["-N1", "-J", "x", "--array=3,5"]


def test_pending_task_is_found_in_the_array_record() -> None:
    many = replace(builders.job(9), array_job_id=9, array_task="3-7%2", state="PENDING")
    one = replace(builders.job(10), array_job_id=9, array_task="1", state="RUNNING")
    assert [task.id for task in tasks_of([many, one], 9, "1")] == [10]
    assert [task.array_task for task in tasks_of([many, one], 9, "5")] == ["5"]
    assert tasks_of([many, one], 9, "8") == []


@pytest.mark.parametrize(
    ("args", "script", "most"),
    [(["-a", "0-9%2"], "", "%2"), (["-a0-9%2", "--array=0-9%3"], "#SBATCH -a 0-9%4\n", "%3"),
     (["-N1"], "#SBATCH -N2 --array=0-9%4 # all\n", "%4"), (["--array=0-9"], "#SBATCH --array=0-9%4\n", ""),
     ([], "#SBATCH -a '0-9%4'\n", "%4")],
)  # fmt: skip
def test_retry_keeps_the_array_task_limit(args: list[str], script: str, most: str) -> None:
    assert with_array(SubmitIn(args=args, script=f"#!/bin/sh\n{script}"), "3,5").args[-1] == f"--array=3,5{most}"
