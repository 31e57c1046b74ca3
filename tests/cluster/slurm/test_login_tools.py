"""What people expect of a login node works on a real cluster: seff, scrontab, Slurm's REST API, torchrun in a venv, tools."""

from __future__ import annotations

import json

from tests.cluster.lab import Lab

REST = "/run/headway/rest.sock"
SUBMIT = {
    "job": {
        "script": "#!/bin/sh\ntrue\n",
        "name": "by-rest",
        "current_working_directory": "/home/alice",
        "environment": ["PATH=/usr/bin:/bin"],
    }
}
CURL = """
export $(scontrol token lifespan=300)
ask() { curl --silent --show-error --fail-with-body --unix-socket %s -H "Authorization: Bearer $SLURM_JWT" "$@"; }
ask http://localhost/slurm/v0.0.42/ping >/dev/null
ask -H 'Content-Type: application/json' --data @- http://localhost/slurm/v0.0.42/job/submit
"""


def test_seff_reports_on_an_ended_job(lab: Lab) -> None:
    job = lab.sbatch("alice", "--gpus=1", "--mem=1G", wrap="true")
    assert lab.wait_job(job) == "COMPLETED"
    told = lab.head("seff", str(job), user="alice").out
    for line in (f"Job ID: {job}", "User/Group: alice/alice", "State: COMPLETED (exit code 0)", "GPUs: 1"):
        assert line in told.splitlines()


def test_scrontab_submits_at_set_times(lab: Lab) -> None:
    lab.head("scrontab", "-", user="sara", stdin="#SCRON --job-name=each-hour --time=5\n@hourly /bin/true\n")
    assert "each-hour" in lab.head("scrontab", "-l", user="sara").out
    assert "each-hour" in lab.head("squeue", "--me", "--noheader", "-o", "%j", user="sara").out.split()
    lab.head("scrontab", "-r", user="sara")
    assert not lab.head("squeue", "--me", "--noheader", "-n", "each-hour", user="sara").out


def test_slurms_rest_api_acts_as_the_owner_of_the_token(lab: Lab) -> None:
    answer = json.loads(lab.head("bash", "-ec", CURL % REST, user="alice", stdin=json.dumps(SUBMIT)).out)
    assert lab.wait_job(answer["job_id"]) == "COMPLETED"
    assert "alice" in lab.head("sacct", "-X", "-n", "-o", "user", "-j", str(answer["job_id"])).out
    nothing = [
        "curl",
        "--silent",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--unix-socket",
        REST,
        "http://localhost/slurm/v0.0.42/jobs",
    ]
    assert lab.head(*nothing, user="alice").out == "401"
    forged = lab.head(
        "curl", "-s", "--unix-socket", "/run/headway/slurmrestd.sock", "http://localhost/", user="alice", check=False
    )
    assert forged.code != 0  # that of Headway's server is root's


def test_torchrun_of_a_venv_is_its_own(lab: Lab) -> None:
    lab.head("python3", "-m", "venv", "--system-site-packages", "/scratch/alice/venv", user="alice")
    lab.head("tee", "/scratch/alice/which.py", user="alice", stdin="import sys; print(sys.prefix)\n")
    run = "source /scratch/alice/venv/bin/activate; torchrun --standalone /scratch/alice/which.py"
    assert lab.head("bash", "-c", run, user="alice").out == "/scratch/alice/venv\n"


def test_tools_for_building_software_are_there(lab: Lab) -> None:
    tools = "g++ gfortran cmake pkg-config man tmux screen vim jq wget unzip tree htop pip3 mpicc"
    assert len(lab.head("bash", "-c", f"command -v {tools}", user="alice").out.split()) == len(tools.split())
    assert "sbatch" in lab.head("bash", "-c", "man sbatch | head -3", user="alice").out
    listed = lab.head(
        "bash", "-lc", "module --terse avail 2>&1; module load gcc openmpi; echo $CC $MPICC", user="alice"
    ).out
    assert {"gcc/system", "openmpi/system", "python/system"} <= set(listed.split())
    assert listed.endswith("gcc mpicc\n")
