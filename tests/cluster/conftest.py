"""Real clusters for tests. Tests that break nothing share one; tests that break something create their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _after_a_failed_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a failed test, adds the history of its cluster to the report and cancels its jobs, which would delay the
    next tests."""
    yield
    if request.node.stash.get(FAILED, False) and "lab" in request.fixturenames:
        lab: Lab = request.getfixturevalue("lab")
        request.node.add_report_section("teardown", "story", lab.story())
        left = lab.head("squeue", "--noheader", "--format=%A").out.split()
        if left:
            lab.head("scancel", *left, check=False)


@pytest.fixture(scope="session")
def node_image() -> None:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("these tests make real machines: run them as root after `make setup`")


@pytest.fixture(scope="session")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The shared cluster `lab` (lab.yaml): 4 nodes of 8 simulated GPUs under two leaf switches.

    With HEADWAY_TEST_LAB=FOLDER it is kept between runs, which helps while writing tests; `headway down lab` with
    that state folder removes it.
    """
    kept = os.environ.get("HEADWAY_TEST_LAB", "")
    made = Lab(Path(kept) if kept else tmp_path_factory.mktemp("lab") / "state")
    try:
        made.cli("apply", str(HERE / "lab.yaml"), "--yes", timeout_s=600)
        yield made
    finally:
        if not kept:
            made.down()
