"""The number of rows of a page of a list."""

from __future__ import annotations

DEFAULT_ROWS = 100
MAX_ROWS = 1000
