"""Arrays, pipelines, logs, lineage and the SDK work on a real cluster."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

from headway import AsyncClient
from headway.schemas.submission.reruns import RetryIn
from headway.schemas.submission.run_request import RunIn

EXAMPLES = Path(__file__).parents[3] / "examples"
ARRAY = """#!/bin/bash
#SBATCH --job-name=shards
#SBATCH --array=0-5
#SBATCH --output=%a.log
echo "shard $SLURM_ARRAY_TASK_ID"
case $SLURM_ARRAY_TASK_ID in 1|2|4) [ -e /scratch/$USER/mended ] || exit 3 ;; esac
"""


def wait_array(lab: Lab, job: int) -> None:
    lab.wait(lambda: not (t := lab.client.jobs.tasks("lab", job)).running and not t.pending, f"array {job} to end")


def test_array_of_1000_tasks_is_one_submission(lab: Lab) -> None:
    words = ("submit", "lab", "--parsable", "--hold", str(EXAMPLES / "batch_embed.sbatch"))
    job = int(lab.cli(*words).out)
    told = lab.client.jobs.tasks("lab", job)
    assert (told.total, told.pending) == (1000, 1000)
    assert "0 of 1000 done" in lab.cli("job", "show", "lab", str(job)).out
    lab.cli("cancel", "lab", str(job))


def test_array_retry_reruns_only_failed_tasks(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "shards.sbatch").write_text(ARRAY)
    lab.head("rm", "-f", "/scratch/admin/mended", user="admin")
    job = lab.client.submit(tmp_path / "shards.sbatch", cluster="lab", files=tmp_path).id
    wait_array(lab, job)
    assert "3 of 6 done, 3 failed, 0 running, 0 waiting; failed: 1-2,4" in lab.cli("job", "lab", str(job)).out
    lines = lab.cli("logs", "lab", str(job)).out.splitlines()
    assert sorted(lines) == [f"[{n}] shard {n}" for n in range(6)]
    assert lab.cli("logs", "lab", str(job), "--task", "2").out == "shard 2\n"
    lab.head("touch", "/scratch/admin/mended", user="admin")
    again = json.loads(lab.cli("job", "retry", "lab", str(job), "--failed", "-o", "json").out)["job_id"]
    wait_array(lab, again)
    told = lab.client.jobs.tasks("lab", again)
    assert (told.total, told.done) == (3, 3)
    assert lab.client.jobs.lineage("lab", again).parent == job
    assert "has no failed tasks" in lab.cli("job", "retry", "lab", str(again), check=False).err


def test_pipeline_runs_in_order_and_continues_from_a_failed_step(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "steps.yaml").write_text(
        "name: chain\nsteps:\n"
        "  prepare: {run: bash -c 'echo prepared > data.txt'}\n"
        "  train: {needs: [prepare], nodes: 2, run: bash -c 'cat data.txt && test -e mended'}\n"
        "  report: {needs: [train], run: cat data.txt}\n"
    )
    made = json.loads(lab.cli("pipeline", "run", str(tmp_path / "steps.yaml"), "--cluster", "lab", "-o", "json").out)
    assert [step["name"] for step in made["steps"]] == ["prepare", "train", "report"]
    jobs = {step["name"]: step["job_id"] for step in made["steps"]}
    # Slurm's own dependency, which needs no server
    assert f"afterok:{jobs['train']}" in lab.field(jobs["report"], "Dependency")
    lab.wait_job(jobs["train"], "FAILED")
    shown = lab.wait(
        lambda: (p := lab.client.pipelines.get("lab", made["id"])).state == "failed" and p,
        "the pipeline to have failed",
    )
    assert shown
    assert shown.steps[1].why
    lab.head("touch", f"{made['workdir']}/mended", user="admin")
    again = json.loads(lab.cli("pipeline", "retry", "chain", "--cluster", "lab", "-o", "json").out)
    assert [step["runs"] for step in again["steps"]] == [1, 2, 2]
    report = again["steps"][2]["job_id"]
    assert lab.wait_job(report) == "COMPLETED"
    assert "prepared" in lab.cli("logs", "lab", str(report)).out
    lab.wait(lambda: lab.client.pipelines.get("lab", made["id"]).state == "done", "the pipeline to be done")
    lab.wait(lambda: lab.state_of(jobs["report"]) == "CANCELLED", "the first report to be cancelled")


def test_example_pipeline_is_refused_without_its_environment(lab: Lab) -> None:
    refused = lab.cli("pipeline", "run", str(EXAMPLES / "rlhf.yaml"), "--cluster", "lab", check=False)
    assert refused.code != 0
    assert "lab has no environment llm" in refused.err


def test_lineage_records_origin_and_rerun_repeats_the_job(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text('echo "$GREETING $HF_TOKEN $1"\n')
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, timeout=240)
    (tmp_path / "new").touch()
    words = ("--folder", str(tmp_path), "--env", "GREETING=hello", "--env", "HF_TOKEN", "-o", "json")
    job = json.loads(lab.cli("run", "lab", *words, "--", "sh", "say.sh", "you", HF_TOKEN="s3cret").out)["job_id"]
    assert lab.wait_job(job) == "COMPLETED"
    # Slurm's part of it is of the server's last reading, which may be older than the job's end.
    found = lab.wait(lambda: (told := lab.client.jobs.lineage("lab", job)).nodes and told, "its lineage to have nodes")
    assert found
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert found.git
    assert (found.git.commit, found.git.dirty) == (head.stdout.strip(), True)
    assert found.env == {"GREETING": "hello", "HF_TOKEN": "********"}
    assert found.script_args == ["sh", "say.sh", "you"]
    assert found.nodes.startswith("lab-")
    assert [dataset["name"] for dataset in found.datasets] == ["tiny"]
    assert b"s3cret" not in (lab.state / "headway.db").read_bytes()
    shown = lab.cli("job", "show", "lab", str(job), "--lineage").out
    assert "with uncommitted changes" in shown
    assert "s3cret" not in shown
    (tmp_path / "say.sh").write_text("echo changed\n")
    refused = lab.cli("job", "rerun", "lab", str(job), check=False)
    assert "--env HF_TOKEN" in refused.err
    again = lab.client.jobs.rerun("lab", job, RetryIn(env={"HF_TOKEN": "s3cret"})).job_id
    assert lab.wait_job(again) == "COMPLETED"
    assert "hello s3cret you" in lab.cli("logs", "lab", str(again)).out
    assert lab.client.jobs.get("lab", again).workdir != lab.client.jobs.get("lab", job).workdir


def test_followed_log_is_live_and_shows_why_a_job_waits(lab: Lab) -> None:
    wrap = 'for n in {1..12}; do date +"at %s.%N"; sleep 1; done'
    job = lab.client.jobs.create_run("lab", RunIn(argv=["bash", "-c", wrap], sbatch=["--hold"])).job_id
    follow = subprocess.Popen(
        [sys.executable, "-m", "headway", "logs", "lab", "-f", str(job)], stdout=subprocess.PIPE, env=lab.env, text=True
    )
    assert follow.stdout
    try:
        assert "pending" in follow.stdout.readline()
        lab.head("scontrol", "release", str(job), user="admin")
        late = [time.time() - float(line.split()[1]) for line in follow.stdout if line.startswith("at ")]
        assert follow.wait(60) == 0
    finally:
        follow.kill()
    assert len(late) == 12
    assert min(late) < 1.0  # the others may be delayed by other load on this machine


def test_finished_log_marks_each_restart(lab: Lab) -> None:
    wrap = "[ ${SLURM_RESTART_COUNT:-0} = 1 ] || sleep 300"
    job = lab.client.jobs.create_run("lab", RunIn(argv=["bash", "-c", wrap])).job_id
    lab.wait(lambda: "restart 0" in lab.cli("logs", "lab", str(job), check=False).out, "the first run to begin")
    lab.head("scontrol", "requeue", str(job), user="admin")
    assert lab.wait_job(job) == "COMPLETED"
    output = lab.cli("logs", "lab", str(job)).out
    assert output.index("restart 0 ---") < output.index("restart 1 ---")


def test_sdk_runs_a_command_waits_and_reads_its_log(lab: Lab) -> None:
    job = lab.client.run(["echo", "from a program"], cluster="lab")
    assert job.wait(timeout_s=120).state == "COMPLETED"
    assert "from a program" in list(job.logs(follow=True))


async def test_async_sdk_runs_commands_waits_and_reads_logs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(lab.state))
    async with AsyncClient() as client:
        jobs = await asyncio.gather(*(client.run(["echo", word], cluster="lab") for word in ("one", "two")))
        ended = await asyncio.gather(*(job.wait(timeout_s=120) for job in jobs))
        assert [job.state for job in ended] == ["COMPLETED", "COMPLETED"]
        said = [[line async for line in job.logs()] for job in jobs]
    assert ["one" in said[0], "two" in said[1]] == [True, True]
