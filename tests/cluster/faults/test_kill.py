"""A machine is killed under a job: Slurm marks it down, the job continues elsewhere, and the machine returns."""

from __future__ import annotations

import pytest
from tests.cluster.faults.fault_cluster import NODES, in_service, spare, spec, train
from tests.cluster.jobs.training_run import log, losses
from tests.cluster.lab import Lab

AGAIN = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append
srun bash -c 'echo up; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
"""


def states(lab: Lab) -> dict[str, str]:
    rows = lab.head("sinfo", "-h", "-N", "-o", "%N %T").out.splitlines()
    return {row.split()[0]: row.split()[1] for row in rows}


@pytest.mark.core
def test_spare_is_not_allocated_to_jobs(lab: Lab) -> None:
    held = spare(lab)
    done = lab.head("srun", "-N5", "--immediate=1", "true", user="ann", check=False)
    assert done.code != 0
    assert held not in lab.head("srun", "-N4", "hostname", user="ann").out.split()


@pytest.mark.core
def test_killed_node_costs_a_training_one_restart_and_returns(lab: Lab, whole: dict[int, set[str]]) -> None:
    victim = in_service(lab)[1]
    job = train(lab)
    lab.wait(lambda: max(losses(log(lab, job)), default=0) >= 5, "step 5", patience_s=240)
    lab.podman("kill", lab.container(victim))
    lab.wait(lambda: "down" in states(lab)[victim], "Slurm to have the node down")
    assert victim in lab.cli("status", check=False).out
    lab.wait(lambda: "(restart 1)" in log(lab, job), "the training to go on from its checkpoint", patience_s=240)
    runs_on = lab.head("scontrol", "show", "hostnames", lab.field(job, "NodeList")).out.split()
    assert runs_on == [name for name in NODES if name != victim], "the spare took over"
    assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, job)
    assert lab.field(job, "Restarts") == "1"
    assert losses(log(lab, job)) == whole, "every step of every run has the loss of the undisturbed training"
    lab.wait(lambda: states(lab)[victim] in ("idle", "reserved"), "the machine to be back in service")
    assert spare(lab), "one stands by again"
    assert lab.head("srun", "-N4", "hostname", user="ann").out.count("flt-1-") == 4


def test_job_restarts_on_its_own_machine_after_a_crash(lab: Lab) -> None:
    there = in_service(lab)[:2]
    job = lab.sbatch("ann", f"--nodelist={','.join(there)}", "--output=again.txt", script=AGAIN)
    lab.wait(
        lambda: lab.head("cat", "again.txt", user="ann", check=False).out.split().count("up") == 2,
        "the step to run on both",
    )
    lab.podman("kill", lab.container(there[1]))
    lab.wait(lambda: "down" in states(lab)[there[1]], "Slurm to have the node down")
    lab.podman("start", lab.container(there[1]))
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output("/home/ann/again.txt").splitlines().count("up") == 4


def test_job_restarts_on_a_node_where_slurmstepd_was_killed(lab: Lab) -> None:
    there = in_service(lab)[0]
    script = "#!/bin/bash\nsrun bash -c 'echo up; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 300'\n"
    flags = (f"--nodelist={there}", "--requeue", "--open-mode=append", "--output=killed.txt")
    job = lab.sbatch("ann", *flags, script=script)
    lab.wait(lambda: "up" in lab.head("cat", "killed.txt", user="ann", check=False).out, "the step to run")
    kill = f"pkill -KILL -f '^slurmstepd: .{job}[.]0'; pkill -KILL -u ann"
    lab.podman("exec", lab.container(there), "bash", "-c", kill)
    lab.head("scontrol", "requeue", str(job), user="ann")
    assert lab.wait_job(job, "COMPLETED") == "COMPLETED", lab.output("/home/ann/killed.txt")
    assert lab.output("/home/ann/killed.txt").splitlines().count("up") == 2


def test_apply_recreates_a_deleted_machine(lab: Lab) -> None:
    lab.podman("rm", "-f", "-t", "0", lab.container("flt-1-1"))
    lab.wait(lambda: "down" in states(lab)["flt-1-1"], "Slurm to have the node down")
    lab.cli("apply", spec(lab), "--yes")
    lab.wait(lambda: states(lab)["flt-1-1"] in ("idle", "reserved"), "the new machine to be in service")
    assert lab.head("srun", "-w", "flt-1-1", "hostname", user="ann", check=False).out.strip() in ("flt-1-1", "")
