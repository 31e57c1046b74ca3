"""Debian 12's Slurm 22.05, really brought up: what differs between the versions must not show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
SPEC = """\
name: old
image: debian12
plan: h100-8
nodes: 2
spares: 1
fabric: {leaf_size: 2}
teams: {vision: {users: [ann], share: 1, limits: {running_jobs: 4}}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("old") / "state", name="old")
    file = made.state / "old.yaml"
    file.write_text(SPEC)
    try:
        made.cli("image", "build", "debian12", timeout_s=1800)
        made.cli("apply", str(file), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


def test_it_is_that_version_and_a_second_apply_changes_nothing(lab: Lab) -> None:
    assert "22.05" in lab.head("sinfo", "--version").out
    assert "nothing to change" in lab.cli("apply", str(lab.state / "old.yaml")).out


def test_gpus_are_given_and_shown(lab: Lab) -> None:
    said = lab.head("srun", "-N2", "--gpus-per-node=2", "nvidia-smi", "-L", user="ann").out
    assert sum(line.startswith("GPU ") for line in said.splitlines()) == 4


def test_output_folders_are_made_as_the_user(lab: Lab) -> None:
    job = lab.sbatch("ann", "--output=logs/%j/train.out", wrap="id -un")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output(f"/home/ann/logs/{job}/train.out", user="ann") == "ann\n"


def test_a_killed_node_costs_one_restart(lab: Lab) -> None:
    wrap = "[ ${SLURM_RESTART_COUNT:-0} -ge 1 ] && exit 0; sleep 600"
    job = lab.sbatch("ann", "-N2", "--exclusive", "--requeue", wrap=wrap)
    lab.wait_job(job, "RUNNING")
    lab.podman("kill", lab.container("old-1-2"))
    assert lab.wait_job(job) == "COMPLETED"
    assert int(lab.field(job, "Restarts")) >= 1
