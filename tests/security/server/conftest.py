"""Fixtures of attacks on the server: the app with SQLite (`server`), and a real server process on loopback (`start`). Each test's
connections and time are bounded."""

from __future__ import annotations

from tests.support.servers.fixtures import lab, server
from tests.support.servers.server_process import start, state_dir

__all__ = ["lab", "server", "start", "state_dir"]
