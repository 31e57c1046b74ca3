"""Ends the steps of jobs whose Slurm no longer does it: they would keep the GPUs after the end of this program."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_END_S = 10.0
_POLL_S = 0.1
_PROC = Path("/proc")


def end_steps(folder: Path) -> None:
    """Kills the processes of all steps of the slurmd with this folder, and then their slurmstepd. Waits until they have ended,
    for at most 10 seconds."""
    ends = time.monotonic() + _END_S
    while (steps := _steps(folder)) and time.monotonic() < ends:
        # While slurmstepd lives, its descendants can be told from other processes.
        for pid in _descendants(steps) or steps:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _steps(folder: Path) -> set[int]:
    """Returns each slurmstepd that works in the folder or below, as its slurmd does. It is no child of slurmd, which forks
    twice, and overwrites its environment with its title."""
    return {pid for pid, name, _ in _processes() if name == "slurmstepd" and _works_in(pid, folder)}


def _works_in(pid: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "cwd").readlink().is_relative_to(folder)
    return False


def _descendants(pids: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, _, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = list(pids)
    while todo:
        more = children.get(todo.pop(), [])
        found.update(more)
        todo += more
    return found


def _processes() -> list[tuple[int, str, int]]:
    """Returns number, name and parent of all processes that have not ended."""
    found = []
    for path in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = path.read_text(errors="replace").rpartition(")")
            state, parent = after.split()[:2]
            if state not in "ZX":
                found.append((int(path.parent.name), before.partition("(")[2], int(parent)))
    return found
