"""Checks whether a recorded process still runs, as opposed to a later process with the same number."""

from __future__ import annotations

import os
from pathlib import Path


def process_start_time(pid: int) -> str:
    """Returns the kernel's start time of a process; "" if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def is_alive(pid: int, started: str = "") -> bool:
    """Returns whether process `pid` runs and, if `started` is given, is the one that started then."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    now = process_start_time(pid)
    return bool(now) and (not started or now == started)
