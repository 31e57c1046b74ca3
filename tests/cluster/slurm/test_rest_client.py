"""A client that is generated from the OpenAPI document of a cluster's slurmrestd submits, reads and cancels a job, from another
machine, as docs/howto/rest-api.md says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

USER = "saul"
SOCKET = "/run/headway/rest.sock"
PAGE = ROOT / "docs/howto/rest-api.md"
LOCK = ROOT / "requirements/rest-client.txt"
# Makes the document fit the answers: they have null, or nothing, where it promises a value.
OPTIONAL = (
    'walk(if type == "object" and (.properties | type) == "object" '
    "then del(.required) | .properties[] |= {nullable: true, allOf: [.]} else . end)"
)
FETCH = f"""
export $(scontrol token lifespan=300)
curl --silent --show-error --fail --unix-socket {SOCKET} --header "Authorization: Bearer $SLURM_JWT" \
    http://localhost/openapi/v3 | jq '{OPTIONAL}'
"""
# Prints what the generated client has read, as JSON: no field is looked up by its name in an answer.
PROGRAM = f"""
import importlib, json, pkgutil, sys
from generated import AuthenticatedClient, api, models
from generated.api import slurm, slurmdb

def call(package, name, **arguments):
    module = importlib.import_module(f"{{package.__name__}}.{{name}}")
    return module.sync(client=client, **arguments)

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)
job = models.V0042JobDescMsg(
    name="generated", script="#!/bin/sh\\nsleep 600\\n", hold=True, current_working_directory="/home/{USER}",
    environment=["PATH=/usr/bin:/bin"],
)
number = call(slurm, "slurm_v0042_post_job_submit", body=models.V0042JobSubmitReq(job=job)).job_id
(before,) = call(slurm, "slurm_v0042_get_job", job_id=str(number)).jobs
errors = call(slurm, "slurm_v0042_delete_job", job_id=str(number)).errors
(after,) = call(slurm, "slurm_v0042_get_job", job_id=str(number)).jobs
lists = {{
    "jobs": call(slurm, "slurm_v0042_get_jobs").jobs,
    "nodes": call(slurm, "slurm_v0042_get_nodes").nodes,
    "job_states": call(slurm, "slurm_v0042_get_jobs_state").jobs,
    "associations": call(slurmdb, "slurmdb_v0042_get_associations").associations,
}}
print(json.dumps({{
    "job": number, "name": before.name, "user": before.user_name, "before": before.job_state, "errors": errors,
    "after": after.job_state, "nodes": sorted(node.name for node in lists["nodes"]),
    "listed": number in [one.job_id for one in lists["jobs"]], "states": len(lists["job_states"]),
    "users": sorted({{one.user for one in lists["associations"] if one.user}}),
}}))
"""


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a venv with the generator, which wants other versions of libraries than Headway."""
    venv = tmp_path_factory.mktemp("generator") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=300)
    install = [str(venv / "bin/pip"), "install", "--quiet", "--require-hashes", "--requirement", str(LOCK)]
    subprocess.run(install, check=True, timeout=600)
    return venv / "bin"


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_generated_client_submits_reads_and_cancels(lab: Lab, generator: Path, tmp_path: Path) -> None:
    assert f"jq '{OPTIONAL}'" in PAGE.read_text()
    document = tmp_path / "openapi.json"
    document.write_text(lab.head("bash", "-ec", FETCH, user=USER).out)
    make = [str(generator / "openapi-python-client"), "generate", "--path", str(document), "--meta", "none"]
    subprocess.run([*make, "--output-path", str(tmp_path / "generated")], check=True, timeout=300, capture_output=True)
    (tmp_path / "client.py").write_text(PROGRAM)

    key, config, port = tmp_path / "key", tmp_path / "ssh_config", free_port()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    allow = "mkdir -p -m 700 .ssh; cat > .ssh/authorized_keys; chmod 600 .ssh/authorized_keys"
    lab.head("sh", "-c", allow, user=USER, stdin=key.with_suffix(".pub").read_text())
    config.write_text(lab.cli("ssh-config", "lab").out)
    ssh = ["ssh", "-F", str(config), "-i", str(key), "-l", USER]
    asked = subprocess.run(
        [*ssh, "lab", "scontrol", "token", "lifespan=300"], check=True, timeout=300, capture_output=True, text=True
    )
    tunnel = subprocess.Popen([*ssh, "-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:{SOCKET}", "lab"])
    try:
        wait_until(lambda: listens(port), "the tunnel", lambda: f"ssh: {tunnel.poll()}")
        argv = [str(generator / "python"), "client.py", f"http://127.0.0.1:{port}"]
        ran = subprocess.run(
            [*argv, asked.stdout.strip().removeprefix("SLURM_JWT=")],
            cwd=tmp_path,
            timeout=300,
            capture_output=True,
            text=True,
        )
    finally:
        tunnel.terminate()
        tunnel.wait(60)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["name"], told["user"], told["before"], told["errors"]) == ("generated", USER, ["PENDING"], [])
    assert told["after"] == ["CANCELLED"]
    assert lab.wait_job(told["job"], "CANCELLED")
    assert told["nodes"] == ["lab-1-1", "lab-1-2", "lab-2-1", "lab-2-2"]
    assert told["listed"]
    assert told["states"] > 0
    assert USER in told["users"]


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
