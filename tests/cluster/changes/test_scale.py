"""Node counts change while jobs run: no job is disturbed, slurmctld remains the same process, and nothing is left
behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.lab import Lab

SPEC = """\
name: grow
groups:
  gpu: {plan: h100-8, nodes: 1, max: 3}
  cpu: {plan: cpu-64, nodes: 1, max: 2}
  lazy: {plan: cpu-64, max: 2, idle: 10, price: 1}
  spot: {plan: cpu-64, nodes: 0, max: 2, spot: true, price: 99}
teams: {vision: {users: [ann]}}
"""


# A wrapper of the real podman: while the file exists no machine is created.
PODMAN = """\
#!/bin/bash
if [[ " $* " == *" run "* && -e {fault} ]]; then echo "Error: no capacity" >&2; exit 125; fi
exec {real} "$@"
"""


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("grow") / "state", name="grow")
    real = shutil.which("podman")
    front = made.state / "bin" / "podman"
    front.parent.mkdir()
    front.write_text(PODMAN.format(real=real, fault=made.state / "fault"))
    front.chmod(0o755)
    made.env["PATH"] = f"{front.parent}:{made.env['PATH']}"
    with made.applied(SPEC):
        yield made


def controller(lab: Lab) -> str:
    return lab.head("systemctl", "show", "-p", "MainPID", "-p", "NRestarts", "slurmctld").out


def machines(lab: Lab) -> list[str]:
    return sorted(node["name"] for node in lab.cli("nodes", lab.name, "-o", "json").json())


def wait_machines(lab: Lab, *names: str) -> None:
    """Waits until these are the machines: the list is of the last reading, which may be older than the change."""
    lab.wait(lambda: machines(lab) == sorted(names), f"the machines to be {', '.join(names)}")


def state(lab: Lab, node: str) -> str:
    return lab.head("sinfo", "-h", "-a", "-n", node, "-o", "%T|%E").out.splitlines()[0]


@pytest.mark.core
def test_nodes_are_added_and_removed_while_a_job_runs(lab: Lab) -> None:
    before = controller(lab)
    assert state(lab, "grow-gpu-1-2").endswith("headway: no machine")
    job = lab.sbatch("ann", "--gpus-per-node=8", "--requeue", wrap="srun sleep 1000")
    lab.wait_job(job, "RUNNING")
    assert lab.field(job, "NodeList") == "grow-gpu-1-1"
    waits = lab.sbatch("ann", "--gpus-per-node=8", wrap="hostname; nvidia-smi -L | wc -l")

    lab.cli("scale", lab.name, "gpu=2", "--yes")
    wait_machines(lab, "grow-cpu-1-1", "grow-gpu-1-1", "grow-gpu-1-2", "grow-head")
    lab.wait_job(waits, "COMPLETED")
    assert lab.output(f"/home/ann/slurm-{waits}.out", "ann").split() == ["grow-gpu-1-2", "8"]
    assert "grow-gpu-1-2" in lab.head("cat", "/etc/headway/prometheus/targets.json").out

    lab.cli("scale", lab.name, "gpu=1", "--yes")  # the node without a job is removed
    wait_machines(lab, "grow-cpu-1-1", "grow-gpu-1-1", "grow-head")
    assert state(lab, "grow-gpu-1-2").endswith("headway: no machine")
    assert "grow-gpu-1-2" not in lab.head("cat", "/etc/headway/prometheus/targets.json").out
    assert lab.state_of(job) == "RUNNING"

    refused = lab.cli("scale", lab.name, "gpu=0", "--yes", check=False)
    assert refused.code != 0
    assert "--deadline" in refused.err
    assert lab.state_of(job) == "RUNNING"
    lab.cli("scale", lab.name, "gpu=0", "--yes", "--deadline", "0")
    assert lab.wait_job(job, "PENDING") == "PENDING"
    wait_machines(lab, "grow-cpu-1-1", "grow-head")
    assert lab.cli("incidents", lab.name, "-o", "json").json() == []
    assert controller(lab) == before
    lab.head("scancel", str(job))


def test_cpu_jobs_use_the_cheapest_nodes(lab: Lab) -> None:
    job = lab.sbatch("ann", wrap="hostname")
    lab.wait_job(job, "COMPLETED")
    assert lab.output(f"/home/ann/slurm-{job}.out", "ann").strip() == "grow-cpu-1-1"


def test_job_powers_up_a_node_of_an_autoscaled_group(lab: Lab) -> None:
    assert state(lab, "grow-lazy-1-1").startswith("idle~")
    before = controller(lab)
    job = lab.sbatch("ann", "--constraint=lazy", wrap="hostname")
    lab.wait_job(job, "COMPLETED")
    assert lab.output(f"/home/ann/slurm-{job}.out", "ann").strip() == "grow-lazy-1-1"
    lab.wait(lambda: "grow-lazy-1-1" in machines(lab), "the list of machines to have it")
    lab.head("scontrol", "update", "nodename=grow-lazy-1-1", "state=POWER_DOWN")  # as after ten idle minutes
    lab.wait(lambda: "grow-lazy-1-1" not in machines(lab), "the machine to be given back")
    targets = "/etc/headway/prometheus/targets.json"
    lab.wait(lambda: "grow-lazy" not in lab.head("cat", targets).out, "Prometheus to hear of it")
    assert lab.cli("incidents", lab.name, "-o", "json").json() == []
    assert controller(lab) == before


SAVES = """\
#!/bin/bash
echo "began on $SLURMD_NODENAME" >> ~/spot.log
trap 'echo "warned on $SLURMD_NODENAME" >> ~/spot.log; exit 0' USR1
sleep 1000 & wait
"""


def incident(lab: Lab, kind: str) -> dict[str, Any]:
    """Returns the newest incident with this action, or {}."""
    found = lab.cli("incidents", lab.name, "-o", "json").json()
    return next((one for one in found if one["action"] == kind), {})


def identity(lab: Lab, machine: str) -> str:
    """Returns the container's id, which no later container has."""
    return lab.podman("inspect", "--format", "{{.Id}}", lab.container(machine)).strip()


def test_reclaimed_spot_machine_is_replaced_and_its_job_requeued(lab: Lab) -> None:
    before = controller(lab)
    lab.cli("scale", lab.name, "gpu=0", "spot=1", "--yes", "--deadline", "0")
    other = lab.sbatch("ann", "--constraint=cpu", wrap="sleep 1000")
    saves = lab.sbatch("ann", "--constraint=spot", "--requeue", "--signal=B:USR1@20", script=SAVES)
    lab.wait_job(other, "RUNNING")
    lab.wait_job(saves, "RUNNING")
    assert lab.field(saves, "NodeList") == "grow-spot-1-1"
    lab.wait(lambda: "began" in lab.head("cat", "/home/ann/spot.log", check=False).out, "the job to listen")
    taken = identity(lab, "grow-spot-1-1")

    output = lab.cli("fault", lab.name, "reclaim", "grow-spot-1-1", "--in", "60").out
    assert "grow-spot-1-1 is reclaimed in 60 s" in output
    lab.wait(lambda: lab.field(saves, "Restarts") == "1", "the job to be requeued")
    lab.wait_job(saves, "RUNNING")
    node = lab.field(saves, "NodeList")  # in the slot that became free, where the old machine had been removed by then
    assert identity(lab, node) != taken
    log = lab.output("/home/ann/spot.log", "ann").splitlines()
    assert log[:2] == ["began on grow-spot-1-1", "warned on grow-spot-1-1"]
    over = lab.wait(lambda: (one := incident(lab, "reclaim"))["state"] == "returned" and one, "its incident to end")
    assert over["node"] == "grow-spot-1-1"
    wait_machines(lab, "grow-cpu-1-1", "grow-head", node)
    assert taken not in lab.podman("ps", "-a", "-q", "--no-trunc").split()
    (free,) = {"grow-spot-1-1", "grow-spot-1-2"} - {node}
    assert state(lab, free).endswith("headway: no machine")
    assert (lab.state_of(other), lab.field(other, "Restarts")) == ("RUNNING", "0")
    assert controller(lab) == before
    lab.head("scancel", str(saves))


def test_no_requeue_job_runs_until_its_spot_machine_is_reclaimed(lab: Lab) -> None:
    stays = lab.sbatch("ann", "--constraint=spot", "--no-requeue", wrap="sleep 1000")
    lab.wait_job(stays, "RUNNING")
    node = lab.field(stays, "NodeList")
    lab.cli("fault", lab.name, "reclaim", node, "--in", "45")
    lab.wait(lambda: state(lab, node).startswith("drain"), "the node to be drained")
    assert lab.state_of(stays) == "RUNNING"
    lab.wait(lambda: lab.state_of(stays) in {"NODE_FAIL", "FAILED"}, "the job to end with its node")
    lab.wait(lambda: not lab.containers(node), "the machine to be gone")


def test_failed_machine_creation_opens_an_incident_and_its_job_waits(lab: Lab) -> None:
    (lab.state / "fault").write_text("fail")
    job = lab.sbatch("ann", "--constraint=lazy", wrap="hostname")
    told = lab.wait(lambda: (one := incident(lab, "make")).get("state") == "repairing" and one, "an incident")
    assert "no capacity" in lab.cli("incident", "show", str(told["number"])).out
    lab.wait(lambda: "closed until" in state(lab, "grow-lazy-1-1"), "its slots to be closed")
    assert not [name for name in machines(lab) if "lazy" in name]
    assert lab.wait_job(job, "PENDING") == "PENDING"
