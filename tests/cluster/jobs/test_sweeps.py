"""A sweep on a real cluster: the best trial is found, the others are cancelled at their rung, and the best runs on two nodes."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.lab import Lab

# A trial that is not the best waits until the best one has reported, and never ends by itself.
TRAINING = """\
import json
import os
import pathlib
import time

from headway_train import report

quality = json.loads(os.environ["HEADWAY_PARAMETERS"])["quality"]
reported = pathlib.Path.home() / (os.environ["HEADWAY_SWEEP"] + ".reported")
while quality > 1 and not reported.exists():
    time.sleep(0.1)
report(step=10, loss=quality)
reported.touch()
while quality > 1:
    time.sleep(1)
report(step=20, loss=0.5)
"""
SWEEP = """\
name: quality
run: python3 train.py
method: grid
metric: {name: loss}
parameters: {quality: [3, 1, 2, 4, 5, 6]}
parallel: 3
gpus: 1
time: 10
early_stopping: {min_step: 10, max_step: 20, eta: 6}
"""


def test_best_trial_is_found_and_the_others_are_cancelled_early(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    planned = lab.cli("sweep", "run", str(tmp_path / "sweep.yaml"), "--dry-run", "--as", "alice").out
    assert "at most 1.00 GPU-hours" in planned
    started = lab.cli("sweep", "run", str(tmp_path / "sweep.yaml"), "--as", "alice", "-o", "json").json()
    sweep = lab.client.sweeps.get

    def shown(_: Lab) -> str:
        return lab.cli("sweep", "show", started["id"]).out

    lab.wait(lambda: sweep("lab", started["id"]).ended_at is not None, "the end of the sweep", seen=shown)
    found = sweep("lab", started["id"])
    states = {trial.parameters["quality"]: trial.state for trial in found.trials}
    assert states == {1: "done"} | dict.fromkeys(range(2, 7), "stopped"), shown(lab)
    assert (found.state, found.best, found.best_value) == ("done", 2, 0.5)
    assert found.gpu_hours > 0
    jobs = {trial.job_id: trial.state for trial in found.trials}
    told = lab.head("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(map(str, jobs))).out
    ended = {int(number): state.split()[0] for number, _, state in (line.partition("|") for line in told.splitlines())}
    assert ended == {job: "COMPLETED" if state == "done" else "CANCELLED" for job, state in jobs.items()}

    run = lab.cli("sweep", "best", "quality", "--nodes", "2", "--submit", "-o", "json").json()
    assert lab.wait_job(run["job_id"], "COMPLETED") == "COMPLETED", lab.cli("logs", "lab", str(run["job_id"])).out
    lineage = lab.client.jobs.lineage("lab", run["job_id"])
    assert (lineage.sweep, lineage.trial, lineage.parent) == (found.id, 2, found.trials[1].job_id)
    assert len(lab.client.jobs.get("lab", run["job_id"]).nodes) == 2
