"""The task prolog gives jobs the variables of PBS that scripts of PBS read."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headway.render.machine_paths import TASK_PROLOG
from headway.render.slurm.hooks import task_prolog
from tests.support.clusters.render_cases import gpu_cluster

JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "heat flow", "SLURM_SUBMIT_DIR": "/home/ann/run 1", "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_TASKS_PER_NODE": "2(x3),1", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_PARTITION": "train", "HOME": "/home/ann",
}  # fmt: skip


FOUR_NODES = "printf 'n1\\nn2\\nn3\\nn4\\n'"


def start(folder: Path, scontrol: str = FOUR_NODES, **more: str) -> subprocess.Popen[str]:
    """Starts the script with this scontrol."""
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{scontrol}\n")
    program.chmod(0o755)
    made = task_prolog.files(replace(gpu_cluster(), pbs_variables=True))[TASK_PROLOG].text
    env = {**JOB, "PATH": f"{folder}:/usr/bin:/bin", **more}
    argv = ["sh", "-c", made.replace("/tmp/", f"{folder}/")]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def changes(script: subprocess.Popen[str]) -> dict[str, str | None]:
    """Returns the variables that a task gets; None for those that it no longer has."""
    out, _ = script.communicate(timeout=60)
    assert script.returncode == 0
    found: dict[str, str | None] = {}
    for line in out.splitlines():
        word, _, rest = line.partition(" ")
        name, _, value = rest.partition("=")
        found[name] = {"export": value, "unset": None}[word]
    return found


def variables(folder: Path, scontrol: str = FOUR_NODES, **more: str) -> dict[str, str]:
    """Runs the script; returns the variables that the task gets."""
    return {name: value for name, value in changes(start(folder, scontrol, **more)).items() if value is not None}


def test_scripts_of_pbs_find_their_variables(tmp_path: Path) -> None:
    found = variables(tmp_path, SLURM_ARRAY_TASK_ID="3")
    nodes = Path(found["PBS_NODEFILE"])
    assert nodes.read_text().split() == ["n1", "n1", "n2", "n2", "n3", "n3", "n4"]
    assert {name: found[name] for name in ("PBS_JOBID", "PBS_JOBNAME", "PBS_O_WORKDIR", "PBS_ARRAY_INDEX")} == {
        "PBS_JOBID": "7", "PBS_JOBNAME": "heat flow", "PBS_O_WORKDIR": "/home/ann/run 1", "PBS_ARRAY_INDEX": "3",
    }  # fmt: skip
    assert (found["PBS_NP"], found["PBS_NUM_NODES"]) == ("7", "4")
    assert "PBS_NUM_PPN" not in found  # the last node has fewer tasks


@pytest.mark.parametrize(("tasks", "ppn"), [("2(x4)", "2"), ("3", "3")])
def test_tasks_of_each_node_are_known_without_ntasks_per_node(tmp_path: Path, tasks: str, ppn: str) -> None:
    assert variables(tmp_path, SLURM_TASKS_PER_NODE=tasks)["PBS_NUM_PPN"] == ppn  # as of qsub -l nodes=4:ppn=2


def test_steps_keep_the_variables_of_their_job(tmp_path: Path) -> None:
    assert variables(tmp_path, PBS_JOBID="7") == {}
    assert variables(tmp_path, PBS_JOBID="6")["PBS_JOBID"] == "7"  # a job that a job has submitted


def test_job_that_a_job_has_submitted_keeps_no_variable_of_the_first(tmp_path: Path) -> None:
    found = changes(start(tmp_path, PBS_JOBID="6", PBS_ARRAY_INDEX="3", PBS_ARRAYID="3"))
    assert (found["PBS_ARRAY_INDEX"], found["PBS_ARRAYID"], found["PBS_NUM_PPN"]) == (None, None, None)


def test_tasks_that_start_at_once_find_the_complete_list_of_nodes(tmp_path: Path) -> None:
    gate, answer = tmp_path / "gate", tmp_path / "answer"
    os.mkfifo(gate)
    os.mkfifo(answer)
    nodes = Path(variables(tmp_path)["PBS_NODEFILE"])
    second = start(tmp_path, f"echo >{answer}; read _ <{gate}; {FOUR_NODES}")
    answer.read_text()  # the second task waits for scontrol now
    meanwhile = nodes.read_text()
    gate.write_text("go\n")
    assert changes(second)["PBS_NP"] == "7"
    assert [meanwhile, nodes.read_text()] == ["n1\nn1\nn2\nn2\nn3\nn3\nn4\n"] * 2


def test_without_the_list_of_nodes_a_task_gets_neither_its_file_nor_its_length(tmp_path: Path) -> None:
    found = changes(start(tmp_path, "exit 1"))
    assert (found["PBS_JOBID"], found["PBS_NP"], found["PBS_NODEFILE"]) == ("7", None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["scontrol"]


def test_without_the_field_no_task_prolog_runs() -> None:
    assert task_prolog.files(gpu_cluster()) == {}
