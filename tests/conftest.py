"""What all tests share."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

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
