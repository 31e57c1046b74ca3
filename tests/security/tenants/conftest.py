"""Attacks of one user on another: alice attacks carol. The tests share the cluster of tests/cluster/lab.yaml and break
nothing in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import _after_a_failed_test, pytest_runtest_makereport
from tests.cluster.lab import Lab

__all__ = ["_after_a_failed_test", "pytest_runtest_makereport"]

HERE = Path(__file__).parent
NODE = "lab-1-1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def attack(lab: Lab) -> Iterator[Callable[[str], str]]:
    """Returns a function that runs a shell script as alice in a job on NODE, and returns what it printed. The job holds the
    node until the test ends, because its end removes what alice left there."""
    jobs = []

    def run(script: str) -> str:
        folder = lab.head("mktemp", "-d", "/scratch/attack-XXXXXX", user="alice").out.strip()
        lab.head("tee", f"{folder}/attack.sh", user="alice", stdin=script)
        wrap = "bash attack.sh >attack.part 2>&1; mv attack.part attack.txt; sleep 600"
        job = lab.sbatch("alice", f"--chdir={folder}", "-w", NODE, "--mem=1G", wrap=wrap)
        jobs.append(job)
        lab.wait_job(job, "RUNNING")
        done = f"{folder}/attack.txt"
        lab.wait(lambda: lab.head("test", "-e", done, check=False).code == 0, "the attack to end")
        return lab.output(done)

    yield run
    lab.head("scancel", *map(str, jobs), check=False)
    for job in jobs:
        lab.wait_job(job, "CANCELLED")
