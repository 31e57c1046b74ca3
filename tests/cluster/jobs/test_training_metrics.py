"""The metrics that a training reports arrive on the server while it runs, and once also after a requeue."""

from __future__ import annotations

import base64
import csv
import math
from pathlib import Path
from typing import Any

from tests.cluster.lab import Lab

EVENTS = Path(__file__).parents[2] / "unit" / "node" / "train" / "events"
# The first run reports steps 1 to 10 and then waits for its requeue; the second one repeats steps 8 to 10, with a clock that is
# an hour behind.
TRAINING = """\
import math
import os
import time

restarted = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
if restarted:
    clock = time.time
    time.time = lambda: clock() - 3600

from headway_train import report

for step in range(8, 21) if restarted else range(1, 11):
    report(step=step, loss=float("nan") if step == 12 else 100.0 * restarted + step, lr=0.5)
if restarted:
    report(step=20, **{"val/ratio": -math.inf})
else:
    time.sleep(600)
"""


def test_metrics_arrive_while_the_training_runs_and_once_after_a_requeue(lab: Lab) -> None:
    lab.head("tee", "/home/alice/metrics.py", user="alice", stdin=TRAINING)
    job = lab.sbatch("alice", "-N1", "--requeue", "-o", "/home/alice/metrics.txt", wrap="python3 metrics.py")

    def points() -> dict[str, int]:
        found = lab.client.jobs.metrics(lab.name, job)
        return {one.name: one.points for one in found.metrics}

    def output(_: Lab) -> str:
        return f"{points()} {lab.head('cat', '/home/alice/metrics.txt', check=False).out}"

    lab.wait(lambda: points() == {"loss": 10, "lr": 10}, "the metrics of the running job", seen=output)
    lab.head("scontrol", "requeue", str(job), user="alice")
    assert lab.wait_job(job, "COMPLETED") == "COMPLETED", output(lab)
    after = {"loss": 23, "lr": 23, "val/ratio": 1}
    lab.wait(lambda: points() == after, "the metrics of the second run", seen=output)

    series = lab.client.jobs.metric_series(lab.name, job, ["loss", "val/ratio"])
    loss, ratio = series.series
    assert loss.steps == list(range(1, 21)), "each step once, in order, although the second run's clock is behind"
    assert [loss.values[step - 1] for step in (7, 8, 11, 12)] == [7, 108, 111, None]
    assert (loss.not_finite, ratio.not_finite) == ([(12, "nan")], [(20, "-inf")])
    assert len(lab.client.jobs.metrics(lab.name, job).runs) == 2

    told = lab.cli("job", "metrics", "lab", str(job), "--csv").out
    rows = [row for row in csv.DictReader(told.splitlines()) if row["metric"] == "loss"]
    assert [(row["run"], row["step"]) for row in rows] == [
        *(("0", str(step)) for step in range(1, 11)), *(("1", str(step)) for step in range(8, 21)),
    ]  # fmt: skip
    assert math.isnan(float(rows[14]["value"]))


def test_event_files_of_an_unchanged_training_arrive_in_the_table(lab: Lab) -> None:
    """The training copies a file that torch's SummaryWriter wrote."""
    folder = "/home/alice/events"
    lab.head("rm", "-rf", folder)
    lab.head("mkdir", folder, user="alice")
    data = base64.b64encode((EVENTS / "events.out.tfevents.torch").read_bytes()).decode()
    lab.head("tee", f"{folder}/file.b64", user="alice", stdin=data)
    place = "runs/Nov29_12-00-00_n1"
    training = f"mkdir -p {place} && base64 -d file.b64 > {place}/events.out.tfevents.1"
    job = lab.sbatch(
        "alice",
        "-N1",
        "--job-name=events",
        f"--chdir={folder}",
        f"--output={folder}/log.txt",
        wrap=f"HEADWAY_TENSORBOARD_DIR=runs srun python3 -m headway_train bash -c '{training}'",
    )
    assert lab.wait_job(job, "COMPLETED") == "COMPLETED", lab.output(f"{folder}/log.txt")

    def listed() -> list[Any]:
        where = ("--name", "events", "--where", "Loss/train:lowest<=1", "--sort", "lr", "-o", "json")
        return [one for one in lab.cli("trainings", "lab", *where).json()["trainings"] if one["job"] == job]

    found = lab.wait(listed, "the job in the table of trainings")[0]
    assert found["metrics"]["Loss/train"] == {"step": 3, "last": None, "lowest": 1.0, "highest": 2.0}
    (loss,) = lab.client.jobs.metric_series(lab.name, job, ["Loss/train"]).series
    assert (loss.steps, int(loss.times[0]), loss.not_finite) == ([0, 1, 2, 3], 1700000000, [(3, "nan")])
