"""Defaults of a notebook that command line, page and API share. Pure."""

from __future__ import annotations

GPUS = 1
TIME_LIMIT = "8:00:00"
IDLE_MINUTES = 60  # minutes without activity after which it ends
