"""The usual Slurm commands work on a real cluster. Nothing here breaks the cluster; each test has its own user."""

from __future__ import annotations

import re
import textwrap

import pytest
from tests.cluster.lab import Lab

SIMULATED = "SIMULATED"
pytestmark = pytest.mark.core


def test_nvidia_smi_marks_gpus_as_simulated(lab: Lab) -> None:
    plain = lab.head("srun", "--gpus=2", "nvidia-smi", user="alice").out
    assert SIMULATED in plain.splitlines()[0]
    listed = lab.head("srun", "--gpus=2", "nvidia-smi", "-L", user="alice").out
    assert [line.split(":")[0] for line in listed.splitlines() if line.startswith("GPU ")] == ["GPU 0", "GPU 1"]
    queried = lab.head(
        "srun", "--gpus=8", "nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader", user="alice"
    ).out
    assert len(queried.splitlines()) == 8


def test_srun_without_gpus_sees_none(lab: Lab) -> None:
    done = lab.head("srun", "nvidia-smi", "-L", user="alice", check=False)
    assert "GPU 0" not in done.out


def test_four_node_gpu_job_is_accepted_by_test_only(lab: Lab) -> None:
    output = lab.head("srun", "--nodes=4", "--gres=gpu:8", "--test-only", "/bin/true", user="alice")
    assert re.search(r"Job \d+ to start at", output.out + output.err)


def test_overlapping_step_can_inspect_a_running_job(lab: Lab) -> None:
    job = lab.sbatch("vera", "--gpus=2", wrap="touch ready; while [ ! -e go ]; do sleep 0.1; done")
    lab.wait_job(job, "RUNNING")
    inside = lab.head("srun", f"--jobid={job}", "--overlap", "nvidia-smi", "-L", user="vera").out
    lab.head("touch", "/home/vera/go", user="vera")
    assert inside.count("GPU ") >= 2
    assert lab.wait_job(job) == "COMPLETED"


def test_eight_one_gpu_jobs_share_a_node_without_memory_requests(lab: Lab) -> None:
    jobs = [
        lab.sbatch("victor", "--nodelist=lab-2-2", "--gpus=1", wrap="while [ ! -e go ]; do sleep 0.1; done")
        for _ in range(8)
    ]
    for job in jobs:
        lab.wait_job(job, "RUNNING")
    assert {lab.field(job, "NodeList") for job in jobs} == {"lab-2-2"}
    lab.head("touch", "/home/victor/go", user="victor")
    assert {lab.wait_job(job) for job in jobs} == {"COMPLETED"}


def test_jobs_on_one_node_see_different_gpus(lab: Lab) -> None:
    look = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
    probe = f"{look} > $OUT; touch $OUT.done; while [ ! -e go ]; do sleep 0.1; done"
    for name in ("a", "b"):
        lab.sbatch("viola", "-w", "lab-1-1", "--gpus=2", f"--export=ALL,OUT=/home/viola/{name}", wrap=probe)
    lab.wait(lambda: lab.head("ls", "/home/viola", user="viola").out.count(".done") == 2, "both jobs to have looked")
    first, second = (set(lab.output(f"/home/viola/{name}").split()) for name in ("a", "b"))
    lab.head("touch", "/home/viola/go", user="viola")
    assert len(first) == len(second) == 2
    assert not first & second


def test_gpus_of_other_jobs_cannot_be_opened(lab: Lab) -> None:
    script = 'for n in 0 1 2 3 4 5 6 7; do (exec 3</dev/nvidia$n) 2>&1 | sed "s/^/$n /"; done'
    output = lab.head("srun", "--gpus=1", "bash", "-c", script, user="vito", check=False).out
    assert output.count("Operation not permitted") == 7, output


def test_job_over_its_memory_is_killed_without_affecting_others(lab: Lab) -> None:
    hungry = "python3 -c 'x = bytearray(600_000_000); import time; time.sleep(60)'"
    other_job = lab.sbatch("sam", "-w", "lab-1-2", "--mem=100", wrap="while [ ! -e go ]; do sleep 0.1; done")
    lab.wait_job(other_job, "RUNNING")
    victim = lab.sbatch("sam", "-w", "lab-1-2", "--mem=200", wrap=hungry)
    assert lab.wait_job(victim) == "OUT_OF_MEMORY"
    assert lab.state_of(other_job) == "RUNNING"
    lab.head("touch", "/home/sam/go", user="sam")
    assert lab.wait_job(other_job) == "COMPLETED"


def test_array_runs_every_task(lab: Lab) -> None:
    job = lab.sbatch("sara", "--array=0-9%4", "--output=shard-%a.txt", wrap="echo shard $SLURM_ARRAY_TASK_ID")
    lab.wait_array(job)
    output = lab.head("bash", "-c", "cat shard-?.txt | sort", user="sara").out
    assert output.split("\n")[:-1] == [f"shard {n}" for n in range(10)]


def test_array_of_10000_tasks_is_one_submission(lab: Lab) -> None:
    job = lab.sbatch("sara", "--hold", "--array=0-9999", wrap="true")
    lab.head("scancel", str(job), user="sara")
    assert lab.wait_job(job) == "CANCELLED"


def test_dependencies_run_in_order_and_unsatisfiable_ones_never(lab: Lab) -> None:
    first = lab.sbatch("saul", "--output=order.txt", "--open-mode=append", wrap="echo first; exit 1")
    again = lab.sbatch(
        "saul", f"--dependency=afternotok:{first}", "--output=order.txt", "--open-mode=append", wrap="echo again"
    )
    last = lab.sbatch(
        "saul", f"--dependency=afterok:{again}", "--output=order.txt", "--open-mode=append", wrap="echo last"
    )
    never = lab.sbatch("saul", f"--dependency=afterok:{first}", wrap="echo never > never.txt")
    assert lab.wait_job(last) == "COMPLETED"
    assert lab.output("/home/saul/order.txt").split() == ["first", "again", "last"]
    lab.wait(lambda: lab.field(never, "Reason") in ("DependencyNeverSatisfied", ""), "the reason to show")
    lab.head("scancel", str(never), user="saul")


def test_requeued_job_runs_again_and_appends_its_output(lab: Lab) -> None:
    wrap = "echo restart ${SLURM_RESTART_COUNT:-0}; [ ${SLURM_RESTART_COUNT:-0} = 1 ] && exit 0; sleep 300"
    job = lab.sbatch("sonia", "--requeue", "--output=again.txt", "--open-mode=append", wrap=wrap)
    lab.wait_job(job, "RUNNING")
    lab.wait(
        lambda: "restart 0" in lab.head("cat", "again.txt", user="sonia", check=False).out, "the first run to speak"
    )
    lab.head("scontrol", "requeue", str(job), user="sonia")
    assert lab.wait_job(job) == "COMPLETED"
    said = [line for line in lab.output("/home/sonia/again.txt").splitlines() if not line.startswith("slurmstepd")]
    assert said == ["restart 0", "restart 1"]


def test_modules_load_on_the_login_node_and_in_jobs(lab: Lab) -> None:
    assert "Modules based on Lua" in lab.head("bash", "-lc", "module --version 2>&1", user="stan").out
    job = lab.sbatch("stan", "--output=module.txt", script="#!/bin/bash -l\nmodule --version 2>&1; module avail 2>&1\n")
    assert lab.wait_job(job) == "COMPLETED"
    assert "Modules based on Lua" in lab.output("/home/stan/module.txt")


SINK = textwrap.dedent("""
    import socket, sys
    server = socket.create_server(("127.0.0.1", 2525)); server.settimeout(300)
    print("listening", flush=True)
    link, _ = server.accept(); link.settimeout(120); file = link.makefile("rw", newline="\\r\\n")
    def say(text): file.write(text + "\\n"); file.flush()
    say("220 sink"); mail = open("/tmp/mail.txt", "w"); body = False
    for line in file:
        mail.write(line); mail.flush()
        if body:
            if line.strip() == ".": body = False; say("250 taken")
        elif line.upper().startswith("DATA"): body = True; say("354 go on")
        elif line.upper().startswith("QUIT"): say("221 bye"); break
        else: say("250 fine")
""")


def test_mail_is_sent_when_a_job_ends(lab: Lab) -> None:
    lab.head("systemd-run", "--unit=mail-sink", "--collect", "python3", "-c", SINK)
    lab.wait(lambda: "2525" in lab.head("ss", "-lnt").out, "the mail sink to listen")
    job = lab.sbatch("stan", "--mail-type=END", "--mail-user=stan@example.com", wrap="true")
    lab.wait_job(job)
    mail = lab.wait(lambda: lab.head("cat", "/tmp/mail.txt", check=False).out.rpartition("QUIT")[0], "a mail")
    assert "stan@example.com" in mail
    assert f"{job}" in mail


def test_tmp_is_private_to_a_job(lab: Lab) -> None:
    lab.head("srun", "-w", "lab-1-1", "bash", "-c", "echo secret > /tmp/mine", user="alice")
    output = lab.head("srun", "-w", "lab-1-1", "bash", "-c", "ls /tmp", user="vera").out
    assert "mine" not in output


def test_dataset_is_mounted_read_only_on_all_nodes(lab: Lab) -> None:
    output = lab.head("srun", "-N4", "cat", "/datasets/tiny/corpus.txt", user="alice").out
    assert output.count("lazy model") == 4
    refused = lab.head("srun", "-w", "lab-2-1", "touch", "/datasets/tiny/mine", user="alice", check=False)
    assert refused.code != 0


def test_home_and_scratch_are_shared_between_nodes(lab: Lab) -> None:
    lab.head(
        "srun", "-w", "lab-2-1", "bash", "-c", "echo from-a-node > ~/shared; echo x > /scratch/$USER/y", user="alice"
    )
    assert lab.output("/home/alice/shared", user="alice") == "from-a-node\n"
    assert lab.output("/scratch/alice/y", user="alice") == "x\n"
    assert lab.head("cat", "/scratch/alice/y", user="vera", check=False).code != 0


@pytest.mark.parametrize("flags", [["-p", "nosuch"], ["--gres=gpu:9"], ["--time=30-0", "-p", "debug"]])
def test_impossible_jobs_are_refused_at_submission(lab: Lab, flags: list[str]) -> None:
    done = lab.head("sbatch", "-W", *flags, "--wrap=true", user="alice", check=False)
    held = done.code != 0
    assert held, done.out


def test_shared_memory_counts_against_the_memory_limit_of_a_job(lab: Lab) -> None:
    """Files in shared memory count for the job, while the process that wrote them is small: it must be killed before
    slurmstepd."""
    done = lab.head("srun", "--mem=200M", "dd", "if=/dev/zero", "of=/dev/shm/big", "bs=1M", "count=400", user="alice",
                    check=False)  # fmt: skip
    assert done.code != 0
    assert "Out Of Memory" in done.err
    assert "Timed out waiting" not in done.err
