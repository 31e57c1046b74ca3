"""Fixtures of the tests of Prometheus and Alertmanager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.forwarded_port import ForwardedPort


@pytest.fixture
async def forwarded(tmp_path: Path) -> AsyncIterator[ForwardedPort]:
    made = ForwardedPort(tmp_path / "p.sock")
    server = await asyncio.start_unix_server(made.answer, made.path)
    yield made
    server.close()
