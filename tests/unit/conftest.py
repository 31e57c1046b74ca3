"""What several unit tests stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """The app on a SQLite file, at 1000 seconds past the epoch until a test moves its clock."""
    made = await server_fakes.start(tmp_path, builders.Clock())
    yield made
    await made.close()
