"""Single jobs are requeued, cancelled and read correctly, including array tasks and components of heterogeneous
jobs."""

from __future__ import annotations

import pytest

from headway.errors import CommandFailed
from headway.slurm import job_commands
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol


def _named(job: int) -> tuple[str, ...]:
    return ("squeue", "--all", "--noheader", f"--jobs={job}", "--states=all", "--format=%A %i")


TASKS = "2 1_0\n3 1_1\n1 1_2\n"  # as squeue shows an array of three that run: its own number is the last one's


async def test_requeued_job_starts_in_the_second_after_its_requeue_at_the_earliest() -> None:
    update = ("scontrol", "update", "JobId=36_1", "StartTime=uts1700000001")
    slurm = Scontrol({_named(36): (0, "36 36_1\n", ""), update: OK})
    await job_commands.start_requeued_job(slurm, HEAD, 36, 1700000000)
    assert slurm.said[-1] == update


async def test_start_of_a_requeued_job_ignores_already_started_job() -> None:
    update = ("scontrol", "update", "JobId=36", "StartTime=uts1700000001")
    refused = (1, "", "36: Job is no longer pending execution")
    slurm = Scontrol({_named(36): (0, "36 36\n", ""), update: refused})
    await job_commands.start_requeued_job(slurm, HEAD, 36, 1700000000)


async def test_reads_state_of_task_sharing_array_job_id() -> None:
    show = ("scontrol", "--oneliner", "show", "job", "70")
    shown = "".join(
        f"JobId={job} ArrayJobId=70 ArrayTaskId={task} JobName=x Priority=1 JobState={word} Reason=None\n"
        for job, task, word in ((71, 0, "COMPLETED"), (70, 1, "RUNNING"))
    )
    assert await job_commands.read_job_state(Scontrol({show: (0, shown, "")}), HEAD, 70) == "RUNNING"
    assert await job_commands.read_job_state(Scontrol({show: (1, "", "Invalid job id specified")}), HEAD, 70) == ""


async def test_requeue_and_cancel_affect_only_task_sharing_array_job_id() -> None:
    requeue, cancel = ("scontrol", "requeue", "1_2"), ("scancel", "1_2")
    slurm = Scontrol({_named(1): (0, TASKS, ""), requeue: OK, cancel: OK})
    await job_commands.requeue_job(slurm, HEAD, 1)
    await job_commands.cancel_job(slurm, HEAD, 1)
    assert slurm.said == [_named(1), requeue, _named(1), cancel]


async def test_requeue_uses_plain_job_id_and_fails_without_squeue() -> None:
    rest = "1 1_[5-9]\n"  # those of an array that still wait together
    for said in ("1 1\n", "1 1+0\n", rest):
        slurm = Scontrol({_named(1): (0, said, ""), ("scontrol", "requeue", "1"): OK})
        await job_commands.requeue_job(slurm, HEAD, 1)
        assert slurm.said[-1] == ("scontrol", "requeue", "1")
    slurm = Scontrol({_named(1): (1, "", "Unable to contact slurm controller")})
    with pytest.raises(CommandFailed):
        await job_commands.requeue_job(slurm, HEAD, 1)


async def test_requeue_of_het_component_requeues_whole_job() -> None:
    slurm = Scontrol({_named(8): (0, "7 7+0\n8 7+1\n", ""), ("scontrol", "requeue", "7"): OK})
    await job_commands.requeue_job(slurm, HEAD, 8)
    assert slurm.said[-1] == ("scontrol", "requeue", "7")


async def test_requeue_ignores_already_pending_job_only() -> None:
    requeue = ("scontrol", "requeue", "7")
    named = {_named(7): (0, "7 7\n", "")}
    await job_commands.requeue_job(Scontrol({**named, requeue: (1, "", "Job is pending execution for job 7")}), HEAD, 7)
    told = {}
    for words in ("Only batch jobs are accepted or processed", "Job not heterogeneous job leader",
                  "Invalid job id specified", "Rate limit exceeded, please retry momentarily"):  # fmt: skip
        with pytest.raises(CommandFailed) as raised:
            await job_commands.requeue_job(Scontrol({**named, requeue: (1, "", words)}), HEAD, 7)
        told[words.split()[0]] = (
            job_commands.is_requeue_forbidden(raised.value),
            job_commands.is_unknown_job(raised.value),
        )
    assert told == {"Only": (True, False), "Job": (True, False), "Invalid": (False, True), "Rate": (False, False)}


async def test_task_end_is_not_read_from_other_array_tasks() -> None:
    shown = "JobId=2 ArrayJobId=1 JobState=FAILED ExitCode=0:9\nJobId=1 ArrayJobId=1 JobState=COMPLETING ExitCode=0:0\n"
    slurm = Scontrol({("scontrol", "--oneliner", "show", "job", "1"): (0, shown, "")})
    assert await job_commands.read_job_state(slurm, HEAD, 1) == "COMPLETING"
    assert not await job_commands.failed_while_completing(slurm, HEAD, 1)
    assert not await job_commands.was_killed(slurm, HEAD, 1, 0)


async def test_pending_jobs_get_another_qos() -> None:
    show = ("squeue", "-a", "-h", "-t", "PENDING", "-o", "%A|%u|%a|%q")
    change = ("scontrol", "update", "JobId=7", "QOS=physics")
    slurm = Scontrol(
        {show: (0, "7|ann|physics|normal\n9|bob|it|it\n", ""), change: (1, "", "Invalid job id specified")}
    )
    found = await job_commands.pending_jobs_qos(slurm, HEAD)
    assert found == [("7", "ann", "physics", "normal"), ("9", "bob", "it", "it")]
    await job_commands.set_job_qos(slurm, HEAD, "7", "physics")
    assert slurm.said == [show, change]
