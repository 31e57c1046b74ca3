"""Servers as processes of their own, without Slurm: too slow for `make check`."""

from __future__ import annotations

from tests.unit.conftest import server

__all__ = ["server"]
