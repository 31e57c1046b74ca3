"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cluster.lab import Lab

SHARED_CLUSTER = Path(__file__).parent / "cluster" / "lab.yaml"

gc.set_threshold(100_000, 50, 100)  # thousands of short tests: looking for cycles took a fifth of their time
settings.register_profile("headway", deadline=None)  # how long an example takes depends on the machine
settings.register_profile("quick", deadline=None, max_examples=20)  # make check; make test-full tries many more
settings.load_profile("headway")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the golden files (pytest tests/unit/render --update)"
    )


def pytest_collection_finish() -> None:
    """Keeps the garbage collector away from what every test uses."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def node_image() -> None:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("these tests make real machines: run them as root after `make setup`")


@pytest.fixture(scope="session")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The shared cluster `lab` (tests/cluster/lab.yaml): 4 nodes of 8 simulated GPUs under two leaf switches.

    With HEADWAY_TEST_LAB=FOLDER it is kept between runs, which helps while writing tests; `headway down lab` with
    that state folder removes it.
    """
    kept = os.environ.get("HEADWAY_TEST_LAB", "")
    made = Lab(Path(kept) if kept else tmp_path_factory.mktemp("lab") / "state")
    try:
        made.cli("apply", str(SHARED_CLUSTER), "--yes", timeout_s=600)
        yield made
    finally:
        if not kept:
            made.down()
