"""Processes of users."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from ops import user_processes


@pytest.mark.parametrize(
    ("cgroup", "of_a_job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", True),
        ("4:memory:/slurm_lab-1-1/uid_20003/job_1671/step_batch/task_0", True),
        ("0::/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special", False),
        ("0::/user.slice/user-20003.slice/session-3.scope", False),
    ],
)
def test_user_processes_exclude_those_of_jobs(cgroup: str, of_a_job: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_processes, "read_text", lambda _: cgroup + "\n")
    assert (os.getpid() in [pid for pid, _ in user_processes.processes({os.getuid()})]) is not of_a_job


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_end_processes_ends_a_fast_forking_user() -> None:
    uid = 61_234
    race = f"""
import os
os.setgroups([]); os.setresuid({uid}, {uid}, {uid})
os.fork(); os.fork()
print("runs", flush=True)
for _ in range(300_000):
    if os.fork():
        os._exit(0)
"""
    with subprocess.Popen([sys.executable, "-c", race], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        os.read(started.stdout.fileno(), 100)
        try:
            user_processes.end_processes(uid)
            # All that runs holds the other end of this pipe: it ends with the last of them.
            pipe, said = started.stdout.fileno(), b"..."
            while said and select.select([pipe], [], [], 10)[0]:
                said = os.read(pipe, 100)
            assert said == b""
        finally:
            user_processes.at_one_stroke(uid)
