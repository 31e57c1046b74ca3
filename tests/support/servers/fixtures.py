"""Fixtures of the tests that start the app or open SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clusters import builders
from tests.support.clusters.incident_cluster import Ward, ward
from tests.support.servers import inline_sqlite, server_fakes
from tests.support.servers.server_fakes import Server

inline_sqlite.install()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Yields the app on a SQLite file, at 1000 seconds past the epoch until a test moves its clock."""
    made = await server_fakes.start(tmp_path, builders.Clock())
    yield made
    await made.close()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Ward]:
    """Yields an incident engine on its own store, with a fake Slurm that answers only the engine's requests."""
    async with ward(tmp_path) as made:
        yield made
