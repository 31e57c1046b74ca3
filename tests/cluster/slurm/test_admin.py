"""Slurm defaults that administrators rely on: core files, /tmp and /dev/shm of jobs, long reservations, exec and GPU-
hour caps."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from subprocess import PIPE

import pytest
from tests.cluster.lab import Lab


def wait_and_read(lab: Lab, user: str, script: str, *flags: str) -> str:
    """Runs a small batch job and returns its output."""
    out = f"/home/{user}/admin-out.txt"
    lab.head("sbatch", "--wait", f"--output={out}", *flags, user=user, stdin=f"#!/bin/bash\n{script}\n", check=False)
    return lab.output(out, user=user)


def test_jobs_write_no_core_files_by_default(lab: Lab) -> None:
    assert wait_and_read(lab, "vito", "ulimit -c").strip() == "0"
    lab.head("bash", "-c", "ulimit -c unlimited; sbatch --wait -o core.txt --wrap 'ulimit -c; ulimit -Hc'", user="vito")
    assert lab.output("/home/vito/core.txt").split() == ["unlimited", "unlimited"]


def test_job_can_request_tmp_space(lab: Lab) -> None:
    assert wait_and_read(lab, "vito", "echo ran", "--tmp=1G").strip() == "ran"


def test_dev_shm_is_private_to_a_job_and_removed_after_it(lab: Lab) -> None:
    script = "echo x >/dev/shm/mine; stat -f -c %T /dev/shm; ls -A /dev/shm; srun ls -A /dev/shm; ls -A /tmp"
    assert wait_and_read(lab, "sonia", script, "-w", "lab-2-2").split() == ["tmpfs", "mine", "mine"]
    lab.wait(lambda: not left(lab, "/dev/shm/headway /var/lib/headway/job-tmp"), "the epilog to clean up")


def test_files_left_in_node_tmp_are_removed_after_the_job(lab: Lab) -> None:
    """sbcast writes to the node's own /tmp, which no job sees and nothing else would empty."""
    lab.head("bash", "-c", "echo data > f", user="stan")
    wait_and_read(lab, "stan", "sbcast f /tmp/left-by-stan && echo sent", "-w", "lab-2-2")
    assert lab.output("/home/stan/admin-out.txt").strip() == "sent"
    lab.wait(lambda: "left-by-stan" not in left(lab, "/tmp"), "the epilog to clean up")


def left(lab: Lab, folders: str) -> str:
    """Returns the contents of folders of the node, as root outside any job."""
    look = 'find "$@" -mindepth 1 2>/dev/null; true'  # find complains about files that disappear while it searches
    return lab.podman("exec", lab.container("lab-2-2"), "sh", "-c", look, "sh", *folders.split())


def test_slurm_accepts_a_reservation_until_2100(lab: Lab) -> None:
    """Slurm itself must accept such a distant end; the lab has no spare, so the test creates its own reservation."""
    lab.head("scontrol", "create", "reservation", "ReservationName=far", "Nodes=lab-2-2", "EndTime=2100-01-01",
             "StartTime=now+10days", "Users=root")  # fmt: skip
    try:
        assert "EndTime=2100-01-01" in lab.head("scontrol", "show", "reservation", "far").out
    finally:
        lab.head("scontrol", "delete", "ReservationName=far")


def test_systemd_needs_no_daemon_reload(lab: Lab) -> None:
    output = lab.head("systemctl", "show", "-p", "NeedDaemonReload", "--value", "slurmctld", "munge", "ssh").out
    assert output.split() == ["no", "no", "no"]


def test_exec_streams_input_and_output_and_can_be_interrupted(lab: Lab) -> None:
    """Each line is answered before the next is sent: neither input nor output waits for the end."""
    argv = [sys.executable, "-m", "headway", "exec", "lab", "-u", "vito", "--", "bash", "-c"]
    script = "while read line; do echo got $line; done; echo last >&2; exit 7"
    with subprocess.Popen([*argv, script], env=lab.env, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018
        for word in ("one", "two"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"got {word}\n"
        process.stdin.close()
        assert (process.stderr.read(), process.wait(timeout=240)) == ("last\n", 7)
    as_typed = ["env", "--default-signal=INT"]  # tests may have been started in the background, where ^C is ignored
    argv = [*as_typed, *argv, "echo $$; sleep 600"]
    with subprocess.Popen(argv, env=lab.env, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=240) == 130
        finally:
            process.kill()
    lab.wait(lambda: lab.head("kill", "-0", pid, check=False).code != 0, "the command to end")


@pytest.fixture
def _nothing_used(lab: Lab) -> Iterator[None]:
    lab.head("sacctmgr", "-i", "modify", "qos", "where", "name=small", "set", "RawUsage=0")
    yield
    lab.head("scancel", "--user=carol")
    lab.head("sacctmgr", "-i", "modify", "qos", "where", "name=small", "set", "RawUsage=0")


@pytest.mark.usefixtures("_nothing_used")
def test_exhausted_gpu_hour_cap_holds_jobs_until_its_reset(lab: Lab) -> None:
    """carol's team has one GPU-hour per month. The test sets the last reset in the store far back, as on the first
    of a month; nothing else is faked."""
    job = lab.sbatch("carol", "-N4", "--gpus-per-node=8", "--time=1", wrap="sleep 12")
    lab.wait_job(job)
    lab.wait(lambda: used_min(lab) >= 5, "Slurm to count the usage")
    held = lab.sbatch("carol", "-N1", "--gpus=8", "--time=7", wrap="true")
    lab.wait(lambda: lab.field(held, "Reason") == "QOSGrpGRESMinutes", "the cap to be the reason")
    with sqlite3.connect(lab.state / "headway.db", timeout=60) as store:
        changed = store.execute("update refills set at=? where team='small'", (time.time() - 40 * 86400,))
        assert changed.rowcount == 1
    assert lab.wait_job(held) == "COMPLETED"
    assert used_min(lab) < 5


def used_min(lab: Lab) -> float:
    """Returns the GPU-minutes that the team's QOS has used, as the controller enforces it."""
    words = lab.head("scontrol", "-o", "show", "assoc_mgr", "qos=small", "flags=qos").out.split()
    counts = next(word for word in words if word.startswith("GrpTRESMins="))
    shown = next(part for part in counts.removeprefix("GrpTRESMins=").split(",") if part.startswith("gres/gpu="))
    return float(shown.split("(")[1].rstrip(")"))
