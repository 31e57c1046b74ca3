"""What a job can do to jobs of other users on its node."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.lab import Lab
from tests.security.tenants.conftest import NODE

Attack = Callable[[str], str]

_PLANT = """\
for job in $(seq {first} {last}); do
    mkdir /run/headway/pmix/spmix_appdir_{uid}_$job.0 2>/dev/null
done
ls /run/headway/pmix | grep -c _{uid}_
"""
_FILL = """\
srun --overlap sh -c 'own=$(echo /run/headway/pmix/spmix_appdir_$(id -u)_*); i=0
    dd if=/dev/zero of=$own/data bs=1M 2>/dev/null
    while [ $i -lt 66000 ] && : >$own/$i; do i=$((i+1)); done; echo $i'
"""
# Threads count as processes and need less memory. Without a limit it stops by itself.
_THREADS = """\
python3 - 2>&1 <<'END'
import threading
threading.stack_size(65536)
count, end = 1, threading.Event()
try:
    while count < 12000:
        threading.Thread(target=end.wait, daemon=True).start()
        count += 1
except RuntimeError as error:
    print(error)
print(count, "threads", flush=True)
end.set()
END
"""
# It starts processes until it may not, and goes on until the test has seen enough. They only sleep, because the tests are not
# about CPUs.
_FORK_BOMB = """\
#!/usr/bin/python3
import os, time
while not os.path.exists("enough"):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    except OSError as error:
        open("refused", "w").write(str(error))
        time.sleep(0.2)
"""


def test_step_folders_cannot_be_created_by_users(lab: Lab, attack: Attack) -> None:
    """slurmstepd creates a folder for each step, and its name can be guessed; an existing one would prevent the step."""
    uid = lab.head("id", "-u", "carol").out.strip()
    now = lab.sbatch("carol", "--hold", wrap="true")
    lab.head("scancel", str(now))
    assert attack(_PLANT.format(uid=uid, first=now, last=now + 30)).strip() == "0"
    assert lab.head("srun", "-w", NODE, "hostname", user="carol").out.strip() == NODE


def test_a_full_step_folder_prevents_no_steps_of_others(lab: Lab, attack: Attack) -> None:
    assert attack(_FILL).split()[-1] == "66000"
    assert lab.head("srun", "-w", NODE, "hostname", user="carol").out.strip() == NODE


def test_users_see_only_their_own_processes_on_a_node(lab: Lab, attack: Attack) -> None:
    victim = lab.sbatch("carol", "-w", NODE, wrap="python3 -c 'import time; time.sleep(600)' --password=secret1")
    lab.wait_job(victim, "RUNNING")
    seen = attack("ps -eo user:20,args; systemctl status --full --no-pager")
    lab.head("scancel", str(victim))
    assert "secret1" not in seen
    assert {row.split()[0] for row in seen.splitlines()[1:] if "ps -eo" in row} == {"alice"}


def test_a_job_has_a_limit_of_threads(lab: Lab, attack: Attack) -> None:
    found = attack(_THREADS)
    assert "can't start new thread" in found
    assert int(found.split()[-2]) <= 4096


def _start_fork_bomb(lab: Lab) -> tuple[int, str]:
    """Starts a fork bomb as a job of alice on NODE, and waits until it may start no more processes. Returns the job and its
    folder."""
    folder = lab.head("mktemp", "-d", "/scratch/bomb-XXXXXX", user="alice").out.strip()
    flags = (f"--chdir={folder}", f"--output={folder}/out", "-w", NODE, "--mem=8G")
    job = lab.sbatch("alice", *flags, script=_FORK_BOMB)
    refused = lab.wait(lambda: lab.head("cat", f"{folder}/refused", check=False).out, "the bomb to be stopped")
    assert "Resource temporarily unavailable" in refused
    return job, folder


def test_a_fork_bomb_takes_only_the_processes_of_its_job(lab: Lab) -> None:
    """While alice's job has all processes that it may have, steps of another job of hers, a new job and carol's start."""
    neighbour = lab.sbatch("alice", "-w", NODE, "--mem=100M", wrap="sleep 600")
    lab.wait_job(neighbour, "RUNNING")
    bomb, _ = _start_fork_bomb(lab)
    try:
        assert lab.head("srun", f"--jobid={neighbour}", "--overlap", "hostname", user="alice").out.strip() == NODE
        assert lab.head("srun", "-w", NODE, "--mem=100M", "hostname", user="alice").out.strip() == NODE
        assert lab.head("srun", "-w", NODE, "--mem=100M", "hostname", user="carol").out.strip() == NODE
        assert lab.state_of(bomb) == "RUNNING"
    finally:
        lab.head("scancel", str(bomb), str(neighbour))
    lab.wait_job(bomb, "CANCELLED")
    lab.wait(lambda: lab.head("squeue", "-h", "-w", NODE).out == "", "the jobs to leave the node")
    state = ("sinfo", "-h", "-N", "-n", NODE, "-p", "train", "-o", "%T %E")
    lab.wait(lambda: lab.head(*state).out.strip() == "idle none", "the node to be free")
    groups = lab.podman(
        "exec", lab.container(NODE), "sh", "-c", "ls -d /sys/fs/cgroup/pids/headway-jobs/job_* 2>&1 || true"
    )
    assert f"job_{bomb}" not in groups


def test_ssh_sessions_count_as_processes_of_their_job(lab: Lab) -> None:
    folder = lab.head("mktemp", "-d", "/scratch/ssh-XXXXXX", user="alice").out.strip()
    flags = (f"--output={folder}/out", "--nodelist=lab-1-1,lab-1-2", "--mem=100M")
    job = lab.sbatch("alice", *flags, wrap="ssh lab-1-2 cat /proc/self/cgroup")
    lab.wait_job(job, "COMPLETED")
    groups = lab.output(f"{folder}/out")
    assert f"/job_{job}/" in groups
    if ":pids:" in groups:  # cgroup v1
        assert f":pids:/headway-jobs/job_{job}\n" in groups


def test_a_job_that_reaches_its_limit_of_processes_says_so(lab: Lab) -> None:
    job, folder = _start_fork_bomb(lab)
    lab.head("touch", f"{folder}/enough", user="alice")
    lab.wait_job(job, "COMPLETED")
    assert "4096 processes and threads" in lab.output(f"{folder}/out")
