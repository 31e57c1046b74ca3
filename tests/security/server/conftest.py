"""Fixtures of the attacks on a real server process on loopback. Each test's connections and time are bounded."""

from __future__ import annotations

from tests.support.servers.server_process import start, state_dir

__all__ = ["start", "state_dir"]
