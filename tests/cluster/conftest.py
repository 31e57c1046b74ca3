"""Real clusters for tests. Tests that break nothing share one; tests that break something create their own."""

from __future__ import annotations

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
