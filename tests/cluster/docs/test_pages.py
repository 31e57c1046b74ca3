"""The quickstart and the tutorials, typed as they stand on a terminal, make and break a real cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.support.documented_blocks import blocks, run_blocks
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
QUICKSTART, CLUSTER = DOCS / "quickstart.md", DOCS / "tutorials" / "first-cluster.md"
TRAINING, ACCESS = DOCS / "tutorials" / "first-training.md", DOCS / "howto" / "access.md"
# What a person types: yes to `headway down`, a few commands on the head, Ctrl-C once the training makes steps and once the
# node of an incident is back.
REPLIES = (
    (r"\[y/N\]: $", "y\n"),
    (r"@lab-head:\S*[#$] $", "sinfo && srun --gpus 1 nvidia-smi -L && exit\n"),
    (r"\nstep \d+ loss", "^C"),
    (r"incident \d+ .* returned ", "^C"),
)


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yields the installation of a new user, without a cluster."""
    made = Lab(tmp_path_factory.mktemp("pages") / "state")
    try:
        yield made
    finally:
        made.down()


def test_quickstart_makes_a_cluster_and_logs_in(lab: Lab, tmp_path: Path) -> None:
    lab.cli("server", "start")  # as `make demo` does, with which the page begins
    shown = run_blocks(QUICKSTART, "cluster", tmp_path, lab.env, REPLIES)
    assert "GPU 0: NVIDIA H100" in shown
    # The spare. Slurm marks the nodes of a new reservation at its next pass.
    lab.wait(lambda: "resv" in lab.head("sinfo").out, "sinfo to show the spare's reservation")
    lab.cli("down", "lab", "--yes", "--delete-data")
    lab.cli("server", "stop")
    lab.forget_client()


def test_tutorials_change_a_cluster_train_and_survive_a_killed_node(lab: Lab, tmp_path: Path) -> None:
    shown = run_blocks(CLUSTER, "cluster", tmp_path, lab.env, REPLIES)
    assert "GPU 0: NVIDIA H100" in shown
    assert lab.containers("lab-head") == []  # its last step removes it

    lab.cli("apply", str(tmp_path / "cluster.yaml"), "--yes", timeout_s=600)  # as the next page says
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shown = run_blocks(TRAINING, "cluster", tmp_path, lab.env, REPLIES)
    assert "/signin?code=" in shown
    lab.wait(lambda: int(lab.field(2, "Restarts") or 0) >= 1, "the training to start again")
    assert [incident.node for incident in lab.client.incidents.list("lab")] == ["lab-1-2"]
    assert "of bob (member)" in run_blocks(ACCESS, "cluster", tmp_path, lab.env, REPLIES)


def test_all_pages_for_a_cluster_are_run() -> None:
    found = {page for page in DOCS.rglob("*.md") for block in blocks(page) if block.how == "cluster"}
    howto = {
        DOCS / "howto" / name for name in ("jobs.md", "storage.md", "rest-api.md", "faults.md")
    }  # test_howto_pages.py
    assert found == {QUICKSTART, CLUSTER, TRAINING, ACCESS, *howto}
