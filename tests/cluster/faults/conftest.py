"""Fixtures of the tests that break nodes, which share one cluster: 4 nodes and a spare."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.faults.fault_cluster import nodes, spec, train
from tests.cluster.jobs.training_run import EXAMPLES, HOME, log, losses
from tests.cluster.lab import Lab


@pytest.fixture(scope="package")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    kept = os.environ.get("HEADWAY_TEST_LAB", "")
    made = Lab(Path(f"{kept}-faults") if kept else tmp_path_factory.mktemp("faults") / "state", name="flt")
    try:
        made.cli("apply", spec(made), "--yes", timeout_s=600)
        made.cli("cp", "-q", "-r", str(EXAMPLES), f"flt:{HOME}")
        yield made
    finally:
        if not kept:
            made.down()


@pytest.fixture(autouse=True)
def _whole_again(lab: Lab) -> Iterator[None]:
    """After each test, waits until all nodes are in service and the queue is empty."""
    yield
    lab.head("bash", "-c", "scancel $(squeue -h -o %A | sort -u) 2>/dev/null; true")
    if lab.cli("server", "status", check=False).code:
        lab.cli("server", "start")
        lab.forget_client()
    lab.wait(lambda: all(node["usable"] for node in nodes(lab)), "all nodes to be in service")
    lab.wait(lambda: not lab.head("squeue", "-h").out.strip(), "an empty queue")


@pytest.fixture(scope="package")
def whole(lab: Lab) -> dict[int, set[str]]:
    """Returns the losses of an undisturbed training."""
    job = train(lab)
    assert lab.wait_job(job, "COMPLETED", patience_s=240) == "COMPLETED", log(lab, job)
    return losses(log(lab, job))
