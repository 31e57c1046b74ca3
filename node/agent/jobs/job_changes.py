"""Reports immediately that jobs begin and end on this node. The prolog creates a folder for a job; the epilog creates a
mark next to it when it begins, and removes both when it ends. No process is started for this, and no prolog waits. (The
folder is polled instead of watched with inotify, of which a host with many containers has too few instances.)

Each heartbeat repeats the newest changes under a number, so a lost heartbeat loses nothing. The message only tells the
server to look; Slurm says what became of the job."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from agent.gpu.job_gpus import JOBS

LOOK_S = 0.25
FRESH_S = 3.0  # how long a change is repeated in each heartbeat
MOST = 100  # jobs in one heartbeat
ENDS = ".ends"  # suffix of the epilog's mark


class JobChanges:
    """Notices when jobs begin or end on this node."""

    def __init__(self, folder: str = JOBS) -> None:
        self._folder = folder
        self._run = os.urandom(4).hex()  # random for each start, because a restarted agent counts from 1 again
        self._count = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=MOST)
        self._told_at = float("-inf")
        self._changed_at, self._names = self._read_folder()

    def _read_folder(self) -> tuple[int, frozenset[str]]:
        """Returns the folder's modification time and its names. The time shows a job that came and went between two
        looks."""
        try:
            return os.stat(self._folder).st_mtime_ns, frozenset(os.listdir(self._folder))
        except OSError:
            return 0, frozenset()

    def has_changed(self, now: float) -> bool:
        """Returns whether a job began or ended since the last call."""
        changed_at, names = self._read_folder()
        if (changed_at, names) == (self._changed_at, self._names):
            return False
        for name in names ^ self._names:
            number = name.removesuffix(ENDS)
            if number.isdigit():
                self._recent.append((now, int(number)))
        self._changed_at, self._names, self._told_at = changed_at, names, now
        self._count += 1
        return True

    def message_part(self, now: float) -> dict[str, Any]:
        """Returns the part of the next message to the head that names the changed jobs; {} if nothing changed within
        FRESH_S."""
        while self._recent and now - self._recent[0][0] > FRESH_S:
            self._recent.popleft()
        if now - self._told_at > FRESH_S:
            return {}
        return {"turns": {"n": f"{self._run}.{self._count}", "jobs": sorted({job for _, job in self._recent})}}
