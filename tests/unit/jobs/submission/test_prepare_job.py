"""Submissions and reruns get the right folders."""

from __future__ import annotations

from headway.jobs.submission.prepare_job import prepare_resubmit, prepare_run, prepare_submit
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitIn
from tests.support.clusters import builders

LAB = builders.cluster(4)


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
