"""What another user and a viewer learn of the arguments of a job's command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headway.sdk.local_server import running_server
from tests.cluster.lab import Lab
from tests.security.tenants.conftest import NODE

VALUE = "alices-password-0123456789"
# All that Slurm says about a job and its steps to anyone, and the processes of the head.
_LOOK = """\
job=%(job)d
scontrol show job $job; scontrol show job $job --json; scontrol show step $job; scontrol show step $job.0 --json
squeue -a -o "%%all"; squeue -a -O command:1000; squeue --json; squeue -s --json
sacct -a -P -o all; sacct -a --json; sacct -a -P -n -o jobid,submitline
sstat -a -j $job; scontrol write batch_script $job -
ps -eo args; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ
exit 0
"""


@pytest.fixture
def job(lab: Lab, tmp_path: Path) -> Iterator[int]:
    """Alice's job on NODE with a password among its arguments, which runs as a step of srun."""
    (tmp_path / "x").write_text('#!/bin/sh\necho "got $1"; sleep 600\n')
    (tmp_path / "x").chmod(0o755)
    flags = (
        "--as",
        "alice",
        "--launcher",
        "srun",
        f"--sbatch=--nodelist={NODE}",
        "--folder",
        str(tmp_path),
        "-o",
        "json",
    )
    done = lab.cli("run", "lab", *flags, "--", "./x", f"--password={VALUE}")
    job = int(done.json()["job_id"])
    lab.wait_job(job, "RUNNING")
    # A running job's log may not exist yet.
    lab.wait(lambda: VALUE in lab.cli("logs", "lab", str(job), check=False).out, "the program to have its arguments")
    yield job
    lab.head("scancel", str(job))


def test_nobody_else_sees_the_arguments_of_a_command(lab: Lab, job: int) -> None:
    seen = lab.head("bash", "-c", _LOOK % {"job": job}, user="carol")
    assert f"JobId={job}" in seen.out
    assert f"StepId={job}.0" in seen.out
    assert VALUE not in seen.out + seen.err


def test_viewers_of_the_api_do_not_see_the_arguments_of_a_command(lab: Lab, job: int) -> None:
    token = lab.cli("token", "create", "carol", "--scope", "read", "--cluster", "lab", "-q").out.strip()
    server = running_server(lab.state)
    assert server is not None
    base = f"{server.url}/api/v1/clusters/lab"
    with httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60) as carol:
        # The queue is of the last reading, which may be older than the job.
        lab.wait(lambda: str(job) in carol.get(f"{base}/jobs").text, "the job in the queue")
        queue = carol.get(f"{base}/jobs")
        paths = ("", "/script", "/log", "/runs", "/tasks", "/lineage")
        answers = [queue, *(carol.get(f"{base}/jobs/{job}{path}") for path in paths), carol.get(f"{base}/activity")]
    assert all(VALUE not in answer.text for answer in answers)
