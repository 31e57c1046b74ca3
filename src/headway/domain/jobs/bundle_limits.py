"""Limits of a bundle of job files, in the client, which refuses before it sends, and in the server. Pure.

node/user_helper/bundles.py has the same numbers for the node; tests/unit/docs/test_security_inventory.py compares them."""

from __future__ import annotations

MAX_ARCHIVE = 64 * 2**20  # bytes, compressed, as it is sent
MAX_UNPACKED = 512 * 2**20  # bytes, before compression
MAX_FILES = 20_000
