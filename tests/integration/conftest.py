"""Fixtures for tests that start the app or open SQLite, without a separate process."""

from __future__ import annotations

from tests.support.servers.fixtures import lab, server

__all__ = ["lab", "server"]
