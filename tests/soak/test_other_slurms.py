"""Clusters with Slurm 22.05 (Debian 12) and 26.05 (Debian 14) pass the same tests as the default version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.catalog.node_images import IMAGES
from tests.cluster.jobs.lint_agreement import COUNT, compare
from tests.cluster.lab import Lab, frozen_mirrors_will_do

EXAMPLES = Path(__file__).parents[2] / "examples"
OLD = ("old-1-1", "old-1-2", "old-2-1")
pytestmark = pytest.mark.soak
SPEC = """\
name: old
image: IMAGE
plan: h100-8
nodes: 2
spares: 1
fabric: {leaf_size: 2}
teams: {vision: {users: [ann], share: 1, limits: {running_jobs: 4}}}
"""


@pytest.fixture(scope="module", params=["debian12", "debian14"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("old") / "state", name="old", image=request.param)
    frozen_mirrors_will_do(made)
    file = made.state / "old.yaml"
    file.write_text(SPEC.replace("IMAGE", made.image))
    try:
        made.cli("image", "build", made.image, timeout_s=1800)
        made.cli("apply", str(file), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


def test_slurm_version_matches_image_and_second_apply_is_noop(lab: Lab) -> None:
    assert IMAGES[lab.image].slurm.name in lab.head("sinfo", "--version").out
    assert "nothing to change" in lab.cli("apply", str(lab.state / "old.yaml")).out


def test_errors_of_lint_are_refusals_of_sbatch(lab: Lab) -> None:
    found = compare(lab, "ann", seed=8)
    assert found.false_errors == []
    assert len(found.missed) <= COUNT / 100, found.missed


def test_job_gets_requested_gpus(lab: Lab) -> None:
    output = lab.head("srun", "-N2", "--gpus-per-node=2", "nvidia-smi", "-L", user="ann").out
    assert sum(line.startswith("GPU ") for line in output.splitlines()) == 4


def test_creates_job_output_folders_as_user(lab: Lab) -> None:
    job = lab.sbatch("ann", "--output=logs/%j/train.out", wrap="id -un")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output(f"/home/ann/logs/{job}/train.out", user="ann") == "ann\n"


def test_job_restarts_after_node_is_killed(lab: Lab) -> None:
    wrap = "[ ${SLURM_RESTART_COUNT:-0} -ge 1 ] && exit 0; sleep 600"
    job = lab.sbatch("ann", "-N2", "--exclusive", "--requeue", wrap=wrap)
    lab.wait_job(job, "RUNNING")
    lab.podman("kill", lab.container("old-1-2"))
    assert lab.wait_job(job) == "COMPLETED"
    assert int(lab.field(job, "Restarts")) >= 1


def test_prometheus_scrapes_all_machines_and_alertmanager_runs(lab: Lab) -> None:
    units = ("prometheus", "prometheus-alertmanager", "headway-agent")
    assert lab.head("systemctl", "is-active", *units, check=False).out.split() == ["active"] * 3
    ask = ("curl", "-sfG", "http://127.0.0.1:9090/api/v1/query", "--data-urlencode", 'query=sum(up{job="machines"})')

    def seen() -> bool:
        rows = json.loads(lab.head(*ask, check=False).out or "{}").get("data", {}).get("result", [])
        return bool(rows) and rows[0]["value"][1] == "4"

    lab.wait(seen, "the head and three nodes to be scraped")


def test_gpu_error_restarts_job_once_and_node_returns_after_tests(lab: Lab) -> None:
    wrap = "[ ${SLURM_RESTART_COUNT:-0} -ge 1 ] && exit 0; srun sleep 600"
    job = lab.sbatch("ann", "--gpus-per-node=8", "--requeue", wrap=wrap)
    after = lab.sbatch("ann", f"--dependency=afterok:{job}", wrap="true")
    lab.wait_job(job, "RUNNING")
    node = lab.field(job, "NodeList")
    before = len(lab.client.incidents.list("old"))
    lab.cli("fault", "xid", "79", node, "--gpu", "2")
    assert lab.wait_job(after) == "COMPLETED", "the fault was no failure of the job"

    def over() -> bool:
        found = lab.client.incidents.list("old")
        return len(found) == before + 1 and found[0].state == "returned"

    lab.wait(over, "the incident to be over", patience_s=240)
    assert lab.field(job, "Restarts") == "1"


def test_mpi_job_runs_over_two_nodes(lab: Lab) -> None:
    program = "/scratch/allreduce"
    ways = (
        [f"mpirun {program}"] if lab.image == "debian14" else [f"srun {program}", f"mpirun {program}"]
    )  # no PMIx in this version
    lab.head("sh", "-c", f"cat >{program}.c", stdin=(EXAMPLES / "allreduce.c").read_text())
    lab.head("mpicc", "-O2", "-o", program, f"{program}.c")
    job = lab.sbatch("ann", "-N2", "--ntasks-per-node=2", "--output=mpi.txt", wrap=" && ".join(ways))
    assert lab.wait_job(job) == "COMPLETED", lab.output("/home/ann/mpi.txt")
    assert lab.output("/home/ann/mpi.txt").count("sum 10") == 4 * len(ways)  # four ranks each


def lab_nodes(lab: Lab) -> list[tuple[str, str]]:
    """Returns (name, state) of each node."""
    rows = lab.head("sinfo", "-hN", "-o", "%N %T").out.splitlines()
    return [(name, state) for name, state in (row.split() for row in rows)]


def test_steps_on_running_node_reach_newly_added_node(lab: Lab) -> None:
    """The controller is restarted for more nodes: a step that begins on an old node finds the new node nevertheless."""
    serves = {name for name, state in lab_nodes(lab) if state == "idle"}  # faults change which node is the spare
    here = min(serves)
    waits = lab.sbatch("ann", "-N1", "-w", here, wrap="while [ ! -e /scratch/grown ]; do sleep 0.2; done")
    lab.wait_job(waits, "RUNNING")
    file = lab.state / "old.yaml"
    file.write_text(SPEC.replace("IMAGE", lab.image).replace("nodes: 2", "nodes: 4"))
    lab.cli("apply", str(file), "--yes", timeout_s=600)
    assert lab.state_of(waits) == "RUNNING"
    new = [name for name in lab.head("sinfo", "-hN", "-o", "%N").out.split() if name not in OLD]
    argv = ("-N2", "-w", f"{here},{new[0]}", "--output=grown.txt")
    job = lab.sbatch("ann", *argv, wrap="srun -N2 hostname")
    lab.head("touch", "/scratch/grown")
    assert lab.wait_job(job) == "COMPLETED", lab.output("/home/ann/grown.txt")
    assert sorted(lab.output("/home/ann/grown.txt").split()) == sorted([here, new[0]])
