"""Array tasks are counted and found, job failures get a readable reason, and reruns and retries get the right flags and
folders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.errors import Refused
from headway.jobs.explain.slurm_messages import container_error, job_reason, sbatch_hint, with_sbatch_hints
from headway.jobs.submission.prepare_job import prepare_resubmit, prepare_run, prepare_submit
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.view.array_tasks import array_out, failed_tasks, tasks_of, with_array
from headway.schemas.submission.run_options import RunIn
from headway.schemas.submission.submissions import SubmitIn
from tests.support import builders

LAB = builders.cluster(4)


def test_array_counts_its_tasks_by_state() -> None:
    words = ["COMPLETED", "RUNNING", "PENDING", "FAILED", "TIMEOUT", "CANCELLED", "COMPLETED"]
    told = array_out({str(n): word for n, word in enumerate(words)})
    assert (told.total, told.done, told.running, told.pending, told.failed) == (7, 2, 1, 1, 3)
    assert told.failed_tasks == "3-5"


def test_running_and_pending_tasks_are_not_failed() -> None:
    assert failed_tasks({str(n): word for n, word in enumerate(sorted(RUNNING | WAITING))}) == ""


@pytest.mark.parametrize("flags", [["--array=0-9"], ["--array", "0-9"], ["-a", "0-9"], ["-a0-9"], ["--arr=0-9"], []])
def test_retry_replaces_the_array_option_with_its_tasks(flags: list[str]) -> None:
    assert with_array(SubmitIn(args=["-N1", *flags, "-J", "x"]), "3,5").args == ["-N1", "-J", "x", "--array=3,5"]


@pytest.mark.parametrize(
    ("said", "help_"),
    [
        ("Invalid account or account/partition combination specified", "alice is in"),
        ("invalid partition specified: x", "lab has train"),
        ("Requested node configuration is not available", "8 GPUs"),
        ("Batch job submission failed: Job dependency problem", "forgets jobs"),
        ("something new", ""),
    ],
)
def test_sbatch_refusals_get_a_hint(said: str, help_: str) -> None:
    assert help_ in sbatch_hint(said, LAB, "alice") if help_ else sbatch_hint(said, LAB, "alice") == ""
    with pytest.raises(Refused) as caught, with_sbatch_hints(LAB, "alice"):
        raise Refused(said)
    assert help_ in caught.value.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "OUT_OF_MEMORY"}, "--mem"),
        ({"state": "TIMEOUT", "time_limit_s": 5400}, "1 h 30 min"),
        ({"state": "FAILED", "exit_code": 127}, "not found"),
        ({"state": "FAILED", "exit_code": 125}, "its container could not be started"),
        ({"state": "FAILED", "exit_code": 139}, "SIGSEGV"),
        ({"state": "FAILED", "exit_code": 3}, "exit code 3"),
        ({"state": "COMPLETING", "exit_code": 127}, "not found"),
        ({"state": "COMPLETING"}, ""),
        ({"state": "PENDING", "reason": "DependencyNeverSatisfied"}, "can't be satisfied"),
        ({"state": "PENDING", "reason": "Something, new"}, "Something"),
        ({"state": "PENDING", "reason": "None"}, ""),
        ({"state": "RUNNING"}, ""),
        ({"state": "COMPLETED"}, ""),
    ],
)
def test_job_reason_explains_state_and_exit_code(change: dict[str, object], said: str) -> None:
    found = job_reason(replace(builders.job(7), **change))  # type: ignore[arg-type]
    assert said in found if said else found == ""


def test_container_error_is_read_from_the_log() -> None:
    log = "x\nheadway: importing a\nheadway: there is no image a\x1b[2J\n  look at its name\nsrun: error: task 0: 125\n"
    assert container_error(log) == "its container could not be started: there is no image a?[2J; look at its name"
    assert container_error("headway: importing a\nheadway: you may not\nheadway: imported a\n").endswith(
        ": you may not"
    )
    assert container_error("headway: importing a\nsrun: error\n") == ""


def test_submission_with_files_gets_its_own_job_folder() -> None:
    digest = "a" * 64
    sent = prepare_submit(
        SubmitIn(script="#!/bin/sh\n", script_name="a b.sbatch", bundle=digest, chdir="sub"), LAB, "alice", "m1"
    )
    assert sent.request.chdir == "/scratch/alice/runs/a-b-m1/sub"
    assert sent.stage
    assert (sent.stage.bundle, sent.stage.work) == (digest, "/scratch/alice/runs/a-b-m1")
    assert prepare_submit(SubmitIn(script="#!/bin/sh\n"), LAB, "alice", "m1").stage is None


def test_rerun_differs_only_in_its_folder() -> None:
    first = prepare_run(RunIn(argv=["python3", "x.py"], bundle="a" * 64), LAB, "alice", "20260101-000000-abcd")
    second = prepare_resubmit(first.request, {"checkpoints": first.checkpoints}, LAB, "alice", "20260102-000000-ef01")
    assert second.checkpoints == "/scratch/alice/runs/x-20260102-000000-ef01/checkpoints"
    assert second.request.chdir == "/scratch/alice/runs/x-20260102-000000-ef01"
    assert second.request.script
    assert first.request.script
    assert second.request.script.replace("20260102-000000-ef01", "20260101-000000-abcd") == first.request.script
    assert second.request.script_args == first.request.script_args


def test_pending_task_is_found_in_the_array_record() -> None:
    many = replace(builders.job(9), array_job_id=9, array_task="3-7%2", state="PENDING")
    one = replace(builders.job(10), array_job_id=9, array_task="1", state="RUNNING")
    assert [task.id for task in tasks_of([many, one], 9, "1")] == [10]
    assert [task.array_task for task in tasks_of([many, one], 9, "5")] == ["5"]
    assert tasks_of([many, one], 9, "8") == []


def test_rerun_gets_a_new_job_folder_but_keeps_a_personal_one() -> None:
    first = prepare_run(RunIn(argv=["x"]), LAB, "alice", "20260101-000000-abcd")
    assert (
        prepare_resubmit(first.request, {}, LAB, "alice", "20260102-000000-ef01").job_folder
        == "/scratch/alice/runs/x-20260102-000000-ef01"
    )
    mine = SubmitIn(script="#!/bin/sh\n", chdir="/scratch/alice/runs/mine")
    assert prepare_resubmit(mine, {}, LAB, "alice", "m").request == mine


def test_steps_in_a_shared_folder_get_separate_checkpoint_folders() -> None:
    made = prepare_run(RunIn(argv=["x"], name="ppo"), LAB, "alice", "", work="/scratch/alice/runs/p-1")
    assert made.checkpoints == "/scratch/alice/runs/p-1/checkpoints/ppo"
    assert made.checkpoints in (made.request.script or "")


WAITED = """#!/bin/bash
#SBATCH -N2 --dependency=afterok:12 --comment="a --dependency=b" # why
#SBATCH -d afterok:12
#SBATCH --kill-on-invalid-dep yes
#SBATCH hetjob
#SBATCH -Hdafterok:12 -N1
echo "#SBATCH --dependency=stays"
#SBATCH --dependency=is-no-more-read
"""


@pytest.mark.parametrize(
    "words",
    [["--dependency=afterok:1"], ["--dependency", "afterok:1"], ["-d", "any:1"], ["-dany:1"], ["--dep=singleton"],
     ["--kill-on-invalid-dep=yes"], ["--kill-on-invalid-dep", "yes"]],
)  # fmt: skip
def test_rerun_drops_dependency_flags_from_arguments(words: list[str]) -> None:
    args = ["-N1", *words, "-J", "-d", ":", *words, "--wrap", "--dependency=x"]
    assert without_dependency(SubmitIn(args=args)).args == ["-N1", "-J", "-d", ":", "--wrap", "--dependency=x"]


def test_rerun_drops_dependency_flags_from_sbatch_lines() -> None:
    assert without_dependency(SubmitIn(script=WAITED)).script == (
        '#!/bin/bash\n#SBATCH -N2 --comment="a --dependency=b" # why\n#SBATCH hetjob\n#SBATCH -H -N1\n'
        'echo "#SBATCH --dependency=stays"\n#SBATCH --dependency=is-no-more-read\n'
    )
    kept = SubmitIn(args=["-HJx"], script="#!/bin/sh\n#SBATCH   -N2   #as it was\n#SBATCH\n\n#SBATCH -n 3")
    assert without_dependency(kept) == kept


@pytest.mark.parametrize(
    ("args", "script", "most"),
    [(["-a", "0-9%2"], "", "%2"), (["-a0-9%2", "--array=0-9%3"], "#SBATCH -a 0-9%4\n", "%3"),
     (["-N1"], "#SBATCH -N2 --array=0-9%4 # all\n", "%4"), (["--array=0-9"], "#SBATCH --array=0-9%4\n", ""),
     ([], "#SBATCH -a '0-9%4'\n", "%4")],
)  # fmt: skip
def test_retry_keeps_the_array_task_limit(args: list[str], script: str, most: str) -> None:
    assert with_array(SubmitIn(args=args, script=f"#!/bin/sh\n{script}"), "3,5").args[-1] == f"--array=3,5{most}"
