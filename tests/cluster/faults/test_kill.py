"""A machine is killed under a job: Slurm marks it down, the job continues elsewhere, and the machine returns."""

from __future__ import annotations

import pytest
from tests.cluster.faults.fault_cluster import spec, train
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
    done = lab.head("srun", "-N5", "--immediate=1", "true", user="ann", check=False)
    assert done.code != 0
    assert lab.head("srun", "-N4", "hostname", user="ann").out.split().count("flt-1-5") == 0


@pytest.mark.core
def test_killed_node_costs_a_training_one_restart_and_returns(lab: Lab, whole: dict[int, set[str]]) -> None:
    job = train(lab)
    lab.wait(lambda: max(losses(log(lab, job)), default=0) >= 6, "step 6", patience_s=240)
    machine = lab.container("flt-1-2")
    lab.podman("kill", machine)
    lab.wait(lambda: "down" in states(lab)["flt-1-2"], "Slurm to have the node down")
    assert "flt-1-2" in lab.cli("status", check=False).out
    lab.wait(lambda: "(restart 1)" in log(lab, job), "the training to go on from its checkpoint", patience_s=240)
    assert lab.field(job, "NodeList") == "flt-1-[1,3-5]", "the spare took over"
    assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, job)
    assert lab.field(job, "Restarts") == "1"
    assert losses(log(lab, job)) == whole, "every step of every run has the loss of the undisturbed training"
    lab.wait(lambda: states(lab)["flt-1-2"] in ("idle", "reserved"), "the machine to be back in service")
    lab.wait(lambda: "flt-1-" in lab.head("scontrol", "show", "reservation").out, "a spare to stand by again")
    assert lab.head("srun", "-N4", "hostname", user="ann").out.count("flt-1-") == 4


def test_job_restarts_on_its_own_machine_after_a_crash(lab: Lab) -> None:
    there = [name for name, state in states(lab).items() if state == "idle"][:2]  # not the spare, which is reserved
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
    there = next(name for name, state in states(lab).items() if state == "idle")
    script = "#!/bin/bash\nsrun bash -c 'echo up; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 300'\n"
    flags = (f"--nodelist={there}", "--requeue", "--open-mode=append", "--output=killed.txt")
    job = lab.sbatch("ann", *flags, script=script)
    lab.wait(lambda: "up" in lab.head("cat", "killed.txt", user="ann", check=False).out, "the step to run")
    kill = f"pkill -KILL -f '^slurmstepd: .{job}[.]0'; pkill -KILL -u ann"
    lab.podman("exec", lab.container(there), "bash", "-c", kill)
    lab.head("scontrol", "requeue", str(job), user="ann")
    lab.wait(lambda: lab.field(job, "JobState") == "PENDING", "the job to be requeued")
    lab.head("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert lab.wait_job(job, "COMPLETED") == "COMPLETED", lab.output("/home/ann/killed.txt")
    assert lab.output("/home/ann/killed.txt").splitlines().count("up") == 2


def test_apply_recreates_a_deleted_machine(lab: Lab) -> None:
    lab.podman("rm", "-f", "-t", "0", lab.container("flt-1-1"))
    lab.wait(lambda: "down" in states(lab)["flt-1-1"], "Slurm to have the node down")
    lab.cli("apply", spec(lab), "--yes")
    lab.wait(lambda: states(lab)["flt-1-1"] in ("idle", "reserved"), "the new machine to be in service")
    assert lab.head("srun", "-w", "flt-1-1", "hostname", user="ann", check=False).out.strip() in ("flt-1-1", "")
