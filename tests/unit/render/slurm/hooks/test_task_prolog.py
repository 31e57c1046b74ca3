"""The task prolog gives jobs the variables of PBS that scripts of PBS read."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from headway.render.machine_paths import TASK_PROLOG
from headway.render.slurm.hooks import task_prolog
from tests.support.clusters.render_cases import gpu_cluster

JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "heat flow", "SLURM_SUBMIT_DIR": "/home/ann/run 1", "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_TASKS_PER_NODE": "2(x3),1", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_PARTITION": "train", "HOME": "/home/ann",
}  # fmt: skip


def variables(folder: Path, **more: str) -> dict[str, str]:
    """Runs the script with a scontrol that knows four nodes; returns the variables of the task."""
    scontrol = folder / "scontrol"
    scontrol.write_text("#!/bin/sh\nprintf 'n1\\nn2\\nn3\\nn4\\n'\n")
    scontrol.chmod(0o755)
    made = task_prolog.files(replace(gpu_cluster(), pbs_variables=True))[TASK_PROLOG].text
    env = {**JOB, "PATH": f"{folder}:/usr/bin:/bin", **more}
    argv = ["sh", "-c", made.replace("/tmp/", f"{folder}/")]
    out = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = (line.removeprefix("export ").partition("=") for line in out.splitlines())
    return {name: value for name, _, value in lines}


def test_scripts_of_pbs_find_their_variables(tmp_path: Path) -> None:
    found = variables(tmp_path, SLURM_ARRAY_TASK_ID="3")
    nodes = Path(found["PBS_NODEFILE"])
    assert nodes.read_text().split() == ["n1", "n1", "n2", "n2", "n3", "n3", "n4"]
    assert {name: found[name] for name in ("PBS_JOBID", "PBS_JOBNAME", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX")} == {
        "PBS_JOBID": "7", "PBS_JOBNAME": "heat flow", "PBS_O_WORKDIR": "/home/ann/run 1", "PBS_ARRAY_INDEX": "3",
    }  # fmt: skip
    assert (found["PBS_NP"], found["PBS_NUM_NODES"]) == ("7", "4")
    assert "PBS_NUM_PPN" not in found  # the job has no --ntasks-per-node


def test_steps_keep_the_variables_of_their_job(tmp_path: Path) -> None:
    assert variables(tmp_path, PBS_JOBID="7") == {}
    assert variables(tmp_path, PBS_JOBID="6")["PBS_JOBID"] == "7"  # a job that a job has submitted


def test_without_the_field_no_task_prolog_runs() -> None:
    assert task_prolog.files(gpu_cluster()) == {}
