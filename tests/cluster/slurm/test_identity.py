"""Users have one uid on all machines and are confined by SSH, cgroup, file and API rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.cluster.slurm.user_limits import is_limited

from headway.errors import NotAllowed, NotFound
from headway.schemas.access.tokens import TokenIn
from headway.sdk.client import Client

ON_NODE = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-i", ".ssh/test"]


def with_key(lab: Lab, user: str) -> None:
    """Creates a key of the user in their home, as people do on any cluster."""
    script = (
        "mkdir -p -m 700 .ssh; [ -e .ssh/test ] || ssh-keygen -q -t ed25519 -N '' -f .ssh/test;"
        "cp .ssh/test.pub .ssh/authorized_keys; chmod 600 .ssh/authorized_keys"
    )
    lab.head("bash", "-c", script, user=user)


def test_uid_is_the_same_on_every_machine(lab: Lab) -> None:
    here = lab.head("id", "-u", "vera").out.strip()
    there = set(lab.head("srun", "-N4", "id", "-u", user="vera").out.split())
    assert there == {here}
    assert int(here) >= 20000


def test_node_refuses_ssh_without_a_job(lab: Lab) -> None:
    with_key(lab, "victor")
    done = lab.head(*ON_NODE, "lab-1-2", "true", user="victor", check=False)
    assert done.code != 0
    assert "Access denied" in done.err + done.out


def test_ssh_into_a_job_sees_its_gpu_tmp_and_shared_memory(lab: Lab) -> None:
    with_key(lab, "viola")
    lab.head("rm", "-f", "/home/viola/begun", "/home/viola/done", user="viola")
    job = lab.sbatch("viola", "-w", "lab-1-2", "--gpus=1", wrap="touch begun; while [ ! -e done ]; do sleep 0.1; done")
    lab.wait(lambda: lab.head("test", "-e", "/home/viola/begun", check=False).code == 0, "the job to be on its node")
    seen = lab.head(*ON_NODE, "lab-1-2", "nvidia-smi", "-L", user="viola").out
    # And the job's own /tmp and shared memory, not the node's.
    lab.head(*ON_NODE, "lab-1-2", "touch /tmp/by-ssh /dev/shm/by-ssh", user="viola")
    within = ("srun", f"--jobid={job}", "--overlap", "ls", "/tmp/by-ssh", "/dev/shm/by-ssh")
    assert lab.head(*within, user="viola").out == "/dev/shm/by-ssh\n/tmp/by-ssh\n"
    lab.head("touch", "/home/viola/done", user="viola")
    assert seen.count("GPU ") == 1 + seen.count("SIMULATED GPU ")
    assert lab.wait_job(job) == "COMPLETED"


def test_login_sessions_are_limited_and_daemons_protected_from_oom(lab: Lab) -> None:
    limits = lab.head("systemctl", "show", "-p", "TasksMax,MemoryMax,CPUQuotaPerSecUSec", "user-20000.slice").out
    assert "TasksMax=infinity" not in limits
    assert "MemoryMax=infinity" not in limits
    for unit in ("slurmctld", "slurmdbd", "munge", "mariadb"):
        assert "OOMScoreAdjust=-9" in lab.head("systemctl", "show", "-p", "OOMScoreAdjust", unit).out


def test_secret_files_are_not_readable_by_other_users(lab: Lab) -> None:
    for path in ("/etc/munge/munge.key", "/etc/slurm/jwt_hs256.key", "/etc/slurm/slurmdbd.conf"):
        assert lab.head("cat", path, user="alice", check=False).code != 0
    for file in Path(lab.state).iterdir():
        if file.is_file() and file.suffix in (".db", ".sqlite", ".json") and "client" in file.name + "client":
            assert file.stat().st_mode & 0o077 == 0, file


def test_slurmdbd_listens_only_on_the_private_address(lab: Lab) -> None:
    (listens,) = lab.head("ss", "-Hltn", "sport", "=", ":6819").out.splitlines()
    address = lab.head("getent", "hosts", "lab-head").out.split()[0]
    assert listens.split()[3] == f"{address}:6819"


def test_exec_commands_have_the_limits_of_login_sessions(lab: Lab) -> None:
    output = lab.head("cat", "/proc/self/oom_score_adj", "/proc/self/cgroup", user="alice").out
    uid = lab.head("id", "-u", user="alice").out.strip()
    assert output.startswith("500\n")  # killed before any daemon
    assert is_limited(output, uid)
    with_key(lab, "alice")
    cgroup_file = (
        "cd /home/alice; rm -f cgroup_file; systemd-run --user --quiet sh -c 'cd; cat /proc/self/cgroup >b; mv b cgroup_file';"
        "for i in $(seq 300); do [ -e cgroup_file ] && break; sleep 0.1; done; cat cgroup_file"
    )
    assert is_limited(lab.head(*ON_NODE, "lab-head", cgroup_file, user="alice").out, uid)
    job = lab.submit("#!/bin/bash\ncat /proc/self/oom_score_adj\n", user="alice")
    assert lab.wait_job(job) == "COMPLETED"


def test_member_acts_only_as_their_own_user(lab: Lab) -> None:
    made = lab.cli("token", "create", "alice", "--role", "member", "-o", "json").json()
    url = lab.cli("server", "status", "-o", "json").json()["url"]
    env = {"HEADWAY_URL": url, "HEADWAY_TOKEN": made["token"]}
    assert lab.cli("exec", "lab", "--", "id", "-un", **env).out == "alice\n"
    assert lab.cli("exec", "lab", "-u", "root", "--", "id", "-un", check=False, **env).code == 4
    assert lab.cli("exec", "lab", "-u", "alice", "--", "id", "-un", **env).out == "alice\n"
    assert lab.cli("exec", "lab", "-u", "sam", "--", "id", "-un", check=False, **env).code == 4
    script = lab.state / "mine.sbatch"
    script.write_text("#!/bin/bash\nid -un\n")
    output = lab.cli("submit", "lab", "--parsable", str(script), **env)
    job = int(output.out)
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output(f"/home/alice/slurm-{job}.out") == "alice\n"
    other = lab.sbatch("sam", wrap="sleep 300")
    assert lab.cli("cancel", "lab", str(other), check=False, **env).code != 0
    lab.head("scancel", str(other), user="sam")


def as_member(lab: Lab, person: str) -> Client:
    made = lab.client.tokens.create(TokenIn(person=person, role="member"))
    return Client(lab.client.url, made.token or "")


def test_slurm_hides_scripts_and_usage_of_others_as_headway_does(lab: Lab) -> None:
    """Everybody sees the queue; the scripts and usage of others are hidden."""
    job = lab.sbatch("sara", "-p", "debug", "-J", "of-sara", wrap="while [ ! -e seen ]; do sleep 0.1; done")
    lab.wait_job(job, "PENDING", "RUNNING")
    with as_member(lab, "vito") as vito:
        squeue = lab.head("squeue", "-h", "-o", "%i %u %j", user="vito").out.splitlines()
        assert f"{job} sara of-sara" in squeue
        api = lab.wait(
            lambda: next((one for one in vito.jobs.list("lab") if one.id == job), None), "the job in the queue"
        )
        assert (api.user, api.name) == ("sara", "of-sara")
        written = lab.head("scontrol", "write", "batch_script", str(job), "-", user="vito", check=False)
        assert "Invalid user id" in written.err  # its exit code is 0 all the same
        assert "seen" not in written.out
        assert not lab.head("sacct", "-n", "--batch-script", "-j", str(job), user="vito").out.strip()
        with pytest.raises(NotAllowed):
            vito._connection.request_json("GET", f"/clusters/lab/jobs/{job}/log")
        for path in ("script", "lineage"):  # submitted by sbatch itself: Headway keeps no record of it
            with pytest.raises((NotAllowed, NotFound)):
                vito._connection.request_json("GET", f"/clusters/lab/jobs/{job}/{path}")
    shares = lab.head("sshare", "--all", "-P", "-n", "--format=account,user", user="vito").out.splitlines()
    assert {line.partition("|")[2] for line in shares if "|" in line} <= {"", "vito"}
    assert not [line for line in shares if line.startswith(("speech", "small"))]
    lab.head("touch", "/home/sara/seen", user="sara")
    lab.wait_job(job)
