"""What several unit tests stand on."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import builders
from tests.unit import inline_sqlite, server_fakes
from tests.unit.health_world import Ward, ward
from tests.unit.server_fakes import Server

gc.set_threshold(100_000, 50, 100)  # thousands of short tests: a fifth of their time went into looking for cycles

inline_sqlite.install()
settings.register_profile("headway", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("headway")


def pytest_collection_finish() -> None:
    """What every test stands on need not be looked at again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """The app on a SQLite file, at 1000 seconds past the epoch until a test moves its clock."""
    made = await server_fakes.start(tmp_path, builders.Clock())
    yield made
    await made.close()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Ward]:
    """A responder on a store of its own, before a Slurm that answers just its questions."""
    async with ward(tmp_path) as made:
        yield made
