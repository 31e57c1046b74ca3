"""Trainings that are killed, warned or preempted continue with the same loss curve as an undisturbed one."""

from __future__ import annotations

import re

import pytest
from tests.cluster.jobs.training_run import EXAMPLES, HOME, log, losses
from tests.cluster.lab import Lab

STEPS = ("--steps", "30", "--log-every", "1", "--checkpoint-every", "5", "--step-seconds", "0.5")
TWO = ("--nodes=2", "--gpus-per-node=1")

# Rank 0 leaves the process group while rank 1 has not yet sent its part of the last flag.
LEAVES_EARLY = """\
import time
import torch.distributed as dist
from headway_train.ranks import Flag, Ranks

dist.init_process_group("gloo")
flag = Flag(Ranks())
if dist.get_rank():
    time.sleep(2)
flag.seen()
del flag
dist.destroy_process_group()
"""


@pytest.fixture(scope="module", autouse=True)
def _copied(lab: Lab) -> None:
    lab.head("rm", "-rf", HOME)  # remains of a kept lab: cp would put the folder into it
    lab.cli("cp", "-q", "-r", str(EXAMPLES), f"lab:{HOME}")


def start(lab: Lab, *flags: str, steps: tuple[str, ...] = STEPS) -> int:
    argv = ["env", "-C", HOME, "sbatch", "--parsable", *TWO, *flags, "train_ddp.sbatch", *steps]
    return int(lab.head(*argv, user="admin").out)


def reach(lab: Lab, job: int, step: int) -> None:
    lab.wait(lambda: max(losses(log(lab, job)), default=0) >= step, f"step {step} of job {job}", patience_s=240)


def test_killed_training_continues_with_the_same_loss_curve(lab: Lab) -> None:
    """A rank is killed by -9, then a node's whole step; then the job is requeued while it runs."""
    whole, job = start(lab), start(lab)
    reach(lab, job, 6)
    lab.head("scontrol", "requeue", str(job), user="admin")
    lab.wait(lambda: "resumed from /scratch/admin/train-ddp" in log(lab, job), "the job to go on", patience_s=240)
    reach(lab, job, 13)
    rank = """
        for p in $(pgrep -u admin -f '^[^ ]*python.* train_ddp.py'); do  # of this job: others train here too
            grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/$p/environ && it=$p
        done
        kill -9 $it"""
    node = lab.head("bash", "-c", f"scontrol show hostnames $(squeue -h -j {job} -o %N) | tail -n 1").out.strip()
    lab.head("srun", f"--jobid={job}", "--overlap", "-N1", "-n1", "-w", node, "bash", "-c", rank, user="admin")
    # The training failed, not its node: the script ends with its error, and its owner requeues it.
    lab.wait_job(job, "FAILED", patience_s=240)
    lab.head("scontrol", "requeue", str(job), user="admin")
    for one in (job, whole):
        assert lab.wait_job(one, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, one)
    assert int(lab.field(job, "Restarts")) == 2
    expected, found = losses(log(lab, whole)), losses(log(lab, job))
    assert sorted(expected) == list(range(1, 31))
    assert found == expected, "each step has one loss, however often it was done, and it is the uninterrupted run's"


@pytest.mark.soak
def test_training_is_warned_before_its_time_limit_and_continues(lab: Lab) -> None:
    """A minute is the shortest limit in Slurm, which checks warnings every 30 seconds and sends those due in between
    early."""
    limited = start(lab, "--time=1", "--signal=USR1@25", steps=("--steps", "100000", "--log-every", "1"))
    lab.wait(lambda: "(restart 1)" in log(lab, limited), "the job to go on after its time limit", patience_s=240)
    log_text = log(lab, limited)
    lab.head("scancel", str(limited), user="admin")
    stopped = re.findall(r"^warned: saved step (\d+)", log_text, re.MULTILINE)
    assert f"at step {stopped[0]} (restart 1)" in log_text
    assert "CANCELLED AT" not in log_text.split("warned:")[0]


def test_preempted_training_is_warned_only_if_it_requested_a_signal(lab: Lab) -> None:
    asked = start(lab)
    plain = lab.sbatch(
        "admin",
        "-N1",
        "--exclusive",
        "--requeue",
        "--open-mode=append",
        f"--output={HOME}/plain.txt",
        wrap='echo start; trap "echo USR1" USR1; [ ${SLURM_RESTART_COUNT:-0} = 0 ] && srun sleep 600; echo ended',
    )
    lab.wait_job(plain, "RUNNING")
    reach(lab, asked, 6)
    urgent = lab.sbatch("alice", "-N4", "--exclusive", "-p", "urgent", "-o", "/dev/null", wrap="true")
    assert lab.wait_job(urgent, patience_s=240) == "COMPLETED", lab.why(urgent)
    for job in (asked, plain):
        assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, job)
        assert lab.field(job, "Restarts") == "1", "preempted once, and run to its end once"
    log_text = log(lab, asked)
    stopped = re.findall(r"^warned: saved step (\d+)", log_text, re.MULTILINE)
    assert len(stopped) == 1, log_text
    assert f"at step {stopped[0]} (restart 1)" in log_text
    assert all(len(loss) == 1 for loss in losses(log_text).values()), "no step was lost, so none was done twice"
    assert "USR1" not in lab.output(f"{HOME}/plain.txt")
    assert lab.output(f"{HOME}/plain.txt").count("start") == 2


def test_training_continues_elsewhere_from_the_copies_of_its_checkpoints(lab: Lab) -> None:
    """Another job with an empty folder of its own, as on another cluster."""
    copies = ("--export=ALL,HEADWAY_CHECKPOINT_COPY=/home/admin/copies",)
    lab.head("rm", "-rf", "/home/admin/copies")
    first = start(lab, *copies, steps=("--steps", "10", "--checkpoint-every", "5", "--log-every", "1"))
    assert lab.wait_job(first, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, first)
    assert lab.head("ls", "/home/admin/copies", user="admin").out.split() == ["step-00000005", "step-00000010"]
    second = start(lab, *copies, steps=("--steps", "12", "--checkpoint-every", "5", "--log-every", "1"))
    assert lab.wait_job(second, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, second)
    assert sorted(losses(log(lab, second))) == [11, 12]


def test_server_reads_training_progress_from_reports(lab: Lab) -> None:
    job = start(lab, "--output=/dev/null", steps=("--steps", "100000", "--log-every", "1", "--step-seconds", "0.2"))

    def progress() -> dict[str, float]:
        told = lab.cli("job", "lab", str(job), "-o", "json").json()["progress"]
        return told if told and told["tokens_per_s"] and len(told["series"]) >= 3 else {}

    found = lab.wait(progress, "the server to know the training's progress")
    lab.head("scancel", str(job), user="admin")
    assert found["step"] >= 3
    assert 1 < found["loss"] < 6
    kept = lab.head("cat", f"/var/lib/headway/reports/{job}.jsonl").out
    assert '"tokens_per_s"' in kept
    assert lab.head("cat", f"/var/lib/headway/reports/{job}.jsonl", user="alice", check=False).code != 0


def test_rank_that_leaves_before_the_last_message_ends(lab: Lab) -> None:
    lab.head("tee", f"{HOME}/leaves_early.py", user="admin", stdin=LEAVES_EARLY)
    ranks = "exec env RANK=$SLURM_PROCID WORLD_SIZE=2 LOCAL_RANK=0 python3 leaves_early.py"
    job = lab.sbatch(
        "admin",
        "-N2",
        f"--chdir={HOME}",
        f"--output={HOME}/leaves_early.txt",
        wrap="export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) "
        f"MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1); srun bash -c '{ranks}'",
    )
    assert lab.wait_job(job, "COMPLETED") == "COMPLETED", lab.output(f"{HOME}/leaves_early.txt")


def test_resumed_job_goes_back_to_a_kept_step(lab: Lab) -> None:
    words = ("run", "lab", "--as", "admin", "--name", "back", "--gpus", "1", "--folder", str(EXAMPLES))
    first = int(lab.cli(*words, "--", "torchrun", "train_ddp.py", *STEPS[:-2]).out.split()[3])
    lab.wait_job(first, "COMPLETED", patience_s=240)
    refused = lab.cli("job", "resume", "lab", str(first), "--from", "step:21", check=False)
    assert f"job {first} has no checkpoint of step 21; it keeps steps 25, 30" in refused.err
    assert refused.code != 0
    again = int(lab.cli("job", "resume", "lab", str(first), "--from", "step:25").out.split()[3])
    lab.wait_job(again, "COMPLETED", patience_s=240)
    before, after = (losses(lab.cli("logs", "lab", str(job)).out) for job in (first, again))
    assert after == {step: before[step] for step in range(26, 31)}
