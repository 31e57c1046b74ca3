"""Measured goodput equals that of a training which knows by its own clock how much of its time was productive."""

from __future__ import annotations

import pytest
from tests.cluster.lab import Lab

STEP_S, EVERY = 0.25, 80  # a checkpoint every 20 s
KILLED_AT = 680  # step of the kill: half of all steps, and half a checkpoint interval more
STEPS = 1280
TRAINING = f"""\
import os, pathlib, time
from headway_train import report

saved, told = pathlib.Path("saved"), pathlib.Path("productive")
step = int(saved.read_text()) if saved.exists() else 0
spent = float(told.read_text()) if told.exists() else 0.0  # seconds of steps that are saved
since = 0.0
while step < {STEPS}:
    began = time.monotonic()
    while time.monotonic() - began < {STEP_S} / 5:
        pass
    time.sleep(max(0.0, began + {STEP_S} - time.monotonic()))
    step, since = step + 1, since + time.monotonic() - began
    report(step=step, loss=1 / step)
    if step % {EVERY} == 0:
        spent, since = spent + since, 0.0
        told.write_text(str(spent))
        saved.write_text(str(step))
    if step == {KILLED_AT} and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        pathlib.Path("now").touch()
"""


@pytest.mark.soak
def test_measured_goodput_matches_a_training_within_1_percent(lab: Lab) -> None:
    """The training is requeued between two checkpoints and continues from the last one."""
    place = "/home/stan/truth"
    lab.head("bash", "-c", f"rm -rf {place}; mkdir {place}; cat >{place}/training.py", user="stan", stdin=TRAINING)
    argv = ("--gpus=1", "--requeue", f"--chdir={place}", "--open-mode=append", "--output=out")
    job = lab.sbatch("stan", *argv, wrap="exec python3 training.py")
    ready = ("test", "-e", f"{place}/now")
    lab.wait(lambda: lab.head(*ready, user="stan", check=False).code == 0, "the training's half", patience_s=600)
    lab.head("scontrol", "requeue", str(job))
    assert lab.wait_job(job, "COMPLETED", patience_s=600) == "COMPLETED", lab.output(f"{place}/out")
    productive_s = float(lab.output(f"{place}/productive"))
    assert productive_s >= STEPS * STEP_S
    again_s = (KILLED_AT % EVERY) * STEP_S

    def settled() -> bool:
        """Returns whether both runs have ended and the training's reports show the repeated work, which is not the
        whole first run."""
        runs = lab.client.billing.usage_runs(lab.name, job=job).runs
        return len(runs) == 2 and all(run.end for run in runs) and 0 < runs[0].lost_s < runs[0].elapsed_s / 2

    lab.wait(settled, "the ledger to know both runs, and what was done again", patience_s=240)
    told = lab.client.billing.job_goodput(lab.name, job).total
    assert told.productive_gpu_hours * 3600 == pytest.approx(productive_s, rel=0.01), told
    assert told.lost_gpu_hours * 3600 == pytest.approx(again_s, abs=2)
