"""Jobs share a GPU by MPS: each user's jobs have a control daemon on it, from the first such job to the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import Lab

FILE = """
name: mps
plan: h200-8
nodes: 1
mps: true
teams: {vision: {users: [alice, bob]}}
"""
CONTROL = "/usr/lib/headway/simulated-mps-control"
# Prints the job's share, the folder of its control daemon, whether that answers, and the identity of /dev/shm.
LOOK = f"""\
echo "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY"
echo get_default_active_thread_percentage | {CONTROL}
stat -c %i /dev/shm
"""
OTHERS = f"echo quit | CUDA_MPS_PIPE_DIRECTORY=$1 {CONTROL}; ls $1"


@pytest.fixture(scope="module")
def shared(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("mps") / "state", name="mps")
    with lab.applied(FILE):
        yield lab


def on_node(lab: Lab, script: str) -> str:
    return lab.podman("exec", lab.container("mps-1-1"), "sh", "-c", script)


def daemons(lab: Lab) -> list[str]:
    return on_node(lab, "systemctl list-units --plain --no-legend 'headway-mps-*'; ls /run/headway/mps").splitlines()


def test_each_users_jobs_have_a_control_daemon_on_the_gpu_while_they_run(shared: Lab) -> None:
    uids = [shared.head("id", "-u", name).out.strip() for name in ("alice", "bob")]
    waits = LOOK + "until [ -e free ]; do sleep 0.2; done"
    job = shared.sbatch("alice", "--gres=mps:30", "--output=first.txt", wrap=waits)
    shared.wait_job(job, "RUNNING")
    file = ("cat", "/home/alice/first.txt")
    said = shared.wait(
        lambda: (out := shared.head(*file, check=False).out).count("\n") == 3 and out, "the job's output"
    )
    first = said.split("\n")
    share, number, pipe = first[0].split()
    assert (share, number, first[1]) == ("30", "0", "100.0")
    gpu = pipe.removeprefix(f"/run/headway/mps/{uids[0]}-")

    second = shared.head("srun", "--chdir=/tmp", "--gres=mps:20", "sh", "-c", LOOK, user="alice").out.split("\n")
    assert second[0] == f"20 0 {pipe}"
    assert second[1:] == first[1:], "the same daemon and shared memory"

    argv = ("srun", "--chdir=/tmp", "--gres=mps:50", "sh", "-c")
    other = shared.head(*argv, f"{LOOK}{OTHERS}", "sh", pipe, user="bob", check=False)
    assert other.out.split("\n")[0] == f"50 0 /run/headway/mps/{uids[1]}-{gpu}"
    assert other.out.split("\n")[2] != first[2], "another user's shared memory"
    assert other.err.count("Permission denied") == 2, other.err

    unit = f"headway-mps-{uids[0]}-{gpu}"
    shared.wait(lambda: len(daemons(shared)) == 2, "bob's daemon to end after his only job")
    assert daemons(shared)[0].startswith(f"{unit}.service loaded active running MPS of user {uids[0]} on GPU {gpu}")
    assert f"for nvidia{gpu}\n" in on_node(shared, f"cat {pipe}/control.log"), "it opens no other GPU"
    pid = on_node(shared, f"systemctl show --value -p MainPID {unit}").strip()
    assert on_node(shared, f"nsenter -t {pid} -m stat -c %i /dev/shm").strip() == first[2]

    shared.head("touch", "/home/alice/free", user="alice")
    assert shared.wait_job(job) == "COMPLETED"
    shared.wait(lambda: daemons(shared) == [], "the last daemon to end")
    assert on_node(shared, "ls /dev/shm/headway") == ""


def test_a_job_with_whole_gpus_has_no_daemon(shared: Lab) -> None:
    look = "echo ${CUDA_MPS_PIPE_DIRECTORY:-none} ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-none}"
    assert shared.head("srun", "--gpus=1", "sh", "-c", look, user="alice").out == "none none\n"
    assert daemons(shared) == []
