"""The speed test of volumes."""

from __future__ import annotations

DEFAULT_SPEED_TEST_MIB = 256  # written to each volume
