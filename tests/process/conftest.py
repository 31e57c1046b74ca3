"""Fixtures of tests that talk to real servers on loopback (Headway's own, sshd, PostgreSQL, an object store),
without Slurm. They are too slow for `make check`."""

from __future__ import annotations

from tests.support.servers.fixtures import server

__all__ = ["server"]
