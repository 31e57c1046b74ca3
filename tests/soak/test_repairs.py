"""Faults that take long to detect or repair are handled, on one cluster; the daily tests leave them out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
NODES = ("rep-1-1", "rep-1-2", "rep-1-3")
SPEC = """\
name: rep
plan: h100-8
nodes: 2
spares: 1
health: {flaky_nodes: {score: 3, reserve: true}}
teams: {vision: {users: [ann]}}
"""
LINES = "while true; do echo ${SLURM_RESTART_COUNT:-0} >> /scratch/ann/$SLURM_JOB_ID; sleep 0.2; done"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("rep") / "state", name="rep")
    file = made.state / "rep.yaml"
    file.write_text(SPEC)
    try:
        made.cli("image", "build", "debian13", timeout_s=1800)
        made.cli("apply", str(file), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


@pytest.fixture(autouse=True)
def _whole_again(lab: Lab) -> Iterator[None]:
    yield
    lab.head("scancel", "--user=ann", check=False)
    lab.wait(lambda: not lab.head("squeue", "-h").out.strip(), "an empty queue")


def node_of(lab: Lab, name: str) -> dict[str, Any]:
    return next(node.model_dump() for node in lab.client.clusters.status("rep").nodes if node.name == name)


def ended(lab: Lab, node: str, count: int, patience_s: float = 300) -> dict[str, Any]:
    """Waits until the node has `count` incidents and the newest has ended, and returns it."""

    def there() -> dict[str, Any]:
        found = [incident for incident in lab.client.incidents.list("rep") if incident.node == node]
        over = len(found) == count and found[0].state in {"returned", "out of service"}
        return lab.client.incidents.get("rep", found[0].number).model_dump() if over else {}

    return lab.wait(there, f"incident {count} of {node} to be over", patience_s=patience_s)


def start(lab: Lab, *flags: str) -> tuple[int, str]:
    """Starts a job that writes lines, and returns (job, its node)."""
    job = lab.sbatch("ann", "--requeue", "--mem=100", "-o", "/dev/null", *flags, wrap=LINES)
    lab.wait_job(job, "RUNNING")
    return job, lab.field(job, "NodeList")


def lines(lab: Lab, job: int) -> list[str]:
    return lab.head("cat", f"/scratch/ann/{job}", check=False).out.split()


def test_job_is_requeued_quickly_after_slurmstepd_dies(lab: Lab) -> None:
    job, node = start(lab)
    lab.wait(lambda: lines(lab, job), "the job to write")
    there = lab.container(node)
    lab.podman("exec", there, "sh", "-c", "sleep 20")  # the agent has seen the job: it looks every 15 seconds
    lab.podman("exec", there, "pkill", "-KILL", "-f", rf"slurmstepd: .{job}\.batch")
    lab.wait(lambda: "1" in lines(lab, job), "the job to run again", patience_s=90)
    runs = lines(lab, job)
    assert runs == sorted(runs), "the old run has stopped writing"
    found = ended(lab, node, 1)
    assert not found["drained"], "the node stays in service"
    assert "the slurmstepd of its batch script has died" in found["what"]


def test_killed_head_daemons_restart_without_disturbing_jobs(lab: Lab) -> None:
    job, _ = start(lab)
    units = {
        "slurmrestd": "slurmrestd", "prometheus": "prometheus", "alertmanager": "prometheus-alertmanager",
    }  # fmt: skip
    head = lab.container("rep-head")

    def main_pid(unit: str) -> str:
        output = lab.podman("exec", head, "systemctl", "show", unit, "-p", "MainPID,ActiveState", "--value")
        pid, state = output.split()
        return pid if state == "active" and pid != "0" else ""

    before = {unit: lab.wait(lambda unit=unit: main_pid(unit), unit) for unit in units.values()}  # type: ignore[misc]
    for daemon in units:
        lab.cli("fault", "kill", daemon)
    for unit, pid in before.items():
        lab.wait(lambda unit=unit, pid=pid: main_pid(unit) not in {"", pid}, f"{unit} to run again")  # type: ignore[misc]
    curl = ("curl", "-sf", "http://127.0.0.1:9090/-/ready")
    lab.wait(lambda: lab.head(*curl, check=False).code == 0, "Prometheus to answer")
    assert lab.state_of(job) == "RUNNING"
    assert lab.field(job, "Restarts") == "0"


def test_provider_replaces_machine_that_reboot_does_not_repair(lab: Lab) -> None:
    node = NODES[1]
    count = sum(incident.node == node for incident in lab.client.incidents.list("rep"))
    there = lab.container(node)
    old = lab.podman("inspect", "--format", "{{.Id}}", there)
    # The machine's own disk no longer has one of its GPUs: a reboot brings back seven.
    files = lab.podman("exec", there, "sh", "-c", "grep -l /dev/nvidia3 -r /etc/tmpfiles.d").split()
    lab.podman("exec", there, "sed", "-i", "/nvidia3/d", *files)
    lab.cli("fault", "xid", "79", node, "--gpu", "3")
    found = ended(lab, node, count + 1, patience_s=600)
    assert found["state"] == "returned"
    tries = [step["evidence"]["try"] for step in found["steps"] if "try" in step["evidence"]]
    assert tries == ["reboot", "replace"]
    assert lab.podman("inspect", "--format", "{{.Id}}", lab.container(node)) != old
    assert lab.head("srun", "-w", node, "--gpus-per-node=8", "nvidia-smi", "-L", user="ann").out.count("GPU ") == 8
    assert json.loads(lab.cli("node", "history", node, "-o", "json").out)["score"] == 0, "it is another machine"


def test_flaky_node_accepts_only_jobs_that_name_its_reservation(lab: Lab) -> None:
    node = NODES[0]
    count = sum(incident.node == node for incident in lab.client.incidents.list("rep"))
    lab.cli("fault", "xid", "79", node, "--gpu", "0")
    found = ended(lab, node, count + 1)
    assert found["steps"][-1]["text"].startswith(
        "tests passed; back in service for jobs in reservation headway_flaky only"
    )
    assert "for jobs in reservation headway_flaky only" in lab.cli("node", "history", node).out
    refused = lab.sbatch("ann", "-w", node, "-o", "/dev/null", wrap="true")
    asks = lab.sbatch("ann", "--reservation=headway_flaky", "--gpus-per-node=8", "-o", "/dev/null", wrap="sleep 2")
    assert lab.wait_job(asks, "COMPLETED") == "COMPLETED"
    assert lab.field(asks, "NodeList") == node
    assert lab.state_of(refused) == "PENDING"
    others = lab.sbatch("ann", "-N2", "--exclusive", "-o", "/dev/null", wrap="true")
    assert lab.wait_job(others, "COMPLETED") == "COMPLETED", "the spare has taken its place"
    lab.cli("fault", "xid", "79", node, "--gpu", "0")
    out = ended(lab, node, count + 2)
    assert out["state"] == "out of service", "twice the score"
    lab.cli("fault", "xid", node, "--heal")
    lab.cli("incident", "return", str(out["number"]))
    assert lab.wait_job(refused, "COMPLETED") == "COMPLETED", "a person has vouched for it"


def test_lost_mount_is_repaired_once_despite_manual_heal(lab: Lab) -> None:
    node = NODES[1]
    count = sum(incident.node == node for incident in lab.client.incidents.list("rep"))
    lab.cli("fault", "mount-lost", node)
    assert ended(lab, node, count + 1)["state"] == "returned"
    lab.cli("fault", "mount-lost", node)
    lab.cli("fault", "mount-lost", node, "--heal")
    lab.wait(lambda: node_of(lab, node)["usable"], "the node")
    output = lab.podman("exec", lab.container(node), "findmnt", "-n", "-o", "TARGET", "/scratch").split()
    assert output == ["/scratch"], "mounted once"
