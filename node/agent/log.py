"""The log of the agent's modules: lines on standard error, which systemd writes to the journal."""

from __future__ import annotations

import sys
import time


def log(text: str) -> None:
    """Writes a line to standard error, which is the journal; at most one line a second, the others are dropped. A
    failure may repeat very often."""
    now = time.monotonic()
    if now - _last_written[0] >= 1:
        _last_written[0] = now
        print(text, file=sys.stderr, flush=True)


_last_written = [-1.0]
