"""A machine is killed under a job: Slurm has it down, the job goes on elsewhere, the machine comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import Lab

SPEC = """\
name: kill
plan: h100-8
nodes: 2
spares: 1
fabric: {leaf_size: 2}
teams: {vision: {users: [ann], share: 1}}
"""
TRAIN = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive --requeue --open-mode=append --output=train.txt
echo "restart ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST"
srun bash -c 'while [ ! -e ~/finish ]; do sleep 0.1; done'
echo finished
"""

AGAIN = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append
srun bash -c 'echo up; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
"""


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("kill") / "state", name="kill")
    file = made.state / "kill.yaml"
    file.write_text(SPEC)
    try:
        made.cli("apply", str(file), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


def nodes(lab: Lab) -> dict[str, str]:
    rows = lab.head("sinfo", "-h", "-N", "-o", "%N %T").out.splitlines()
    return {row.split()[0]: row.split()[1] for row in rows}


def test_the_spare_is_not_given_to_anyone_until_it_is_needed(lab: Lab) -> None:
    done = lab.head("srun", "-N3", "--immediate=1", "true", user="ann", check=False)
    assert done.code != 0
    assert lab.head("srun", "-N2", "hostname", user="ann").out.split().count("kill-2-1") == 0


def test_a_killed_node_costs_the_job_one_restart_and_comes_back_by_itself(lab: Lab) -> None:
    job = lab.sbatch("ann", script=TRAIN)
    lab.wait_job(job, "RUNNING")
    lab.wait(lambda: "restart 0" in lab.head("cat", "train.txt", user="ann", check=False).out, "the job to speak")
    machine = lab.container("kill-1-2")
    lab.podman("kill", machine)
    lab.wait(lambda: "down" in nodes(lab)["kill-1-2"], "Slurm to have the node down")
    assert "kill-1-2" in lab.cli("status", check=False).out
    lab.wait(lambda: "restart 1" in lab.output("/home/ann/train.txt"), "the job to go on")
    assert lab.field(job, "NodeList") == "kill-1-1,kill-2-1"
    lab.head("touch", "/home/ann/finish", user="ann")
    assert lab.wait_job(job) == "COMPLETED"
    lab.podman("start", machine)
    lab.wait(lambda: nodes(lab)["kill-1-2"] in ("idle", "reserved"), "the machine to be back in service")
    lab.wait(lambda: "kill-" in lab.head("scontrol", "show", "reservation").out, "a spare to stand by again")
    assert lab.head("srun", "-N2", "hostname", user="ann").out.count("kill-") == 2


def test_a_job_that_its_machine_died_under_starts_again_on_the_same_machine(lab: Lab) -> None:
    flags = ("--nodelist=kill-1-1,kill-1-2", "--output=again.txt")
    job = lab.sbatch("ann", *flags, script=AGAIN)
    lab.wait(
        lambda: lab.head("cat", "again.txt", user="ann", check=False).out.split().count("up") == 2,
        "the step to run on both",
    )
    lab.podman("kill", lab.container("kill-1-2"))
    lab.wait(lambda: "down" in nodes(lab)["kill-1-2"], "Slurm to have the node down")
    lab.podman("start", lab.container("kill-1-2"))
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output("/home/ann/again.txt").splitlines().count("up") == 4


def test_a_deleted_machine_is_given_back_by_apply(lab: Lab) -> None:
    lab.podman("rm", "-f", "-t", "0", lab.container("kill-1-1"))
    lab.wait(lambda: "down" in nodes(lab)["kill-1-1"], "Slurm to have the node down")
    lab.cli("apply", str(lab.state / "kill.yaml"), "--yes")
    lab.wait(lambda: nodes(lab)["kill-1-1"] in ("idle", "reserved"), "the new machine to be in service")
    assert lab.head("srun", "-w", "kill-1-1", "hostname", user="ann", check=False).out.strip() in ("kill-1-1", "")
