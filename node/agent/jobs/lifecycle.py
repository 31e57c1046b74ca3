"""Reports at once that jobs begin and end on this node. The prolog makes a folder for a job; the epilog puts a mark beside it
when it begins and removes both when it ends. No process is started for it, and no prolog waits. (The folder is polled instead of
watched with inotify, of which a host with many containers has too few instances.)

Each heartbeat repeats the newest changes under a number, so a lost heartbeat loses nothing. The message is only a hint to look;
Slurm says what became of the job."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from agent.gpu.job_gpus import JOBS

LOOK_S = 0.25
FRESH_S = 3.0  # for so long a turn is told with each beat
MOST = 100  # jobs in one beat
ENDS = ".ends"  # of the epilog's mark


class JobChanges:
    def __init__(self, folder: str = JOBS) -> None:
        self._folder = folder
        self._run = os.urandom(4).hex()  # an agent that was started again counts from one again
        self._count = 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=MOST)
        self._told_at = float("-inf")
        self._changed_at, self._names = self._look()

    def _look(self) -> tuple[int, frozenset[str]]:
        """When the folder changed last, for a job may be here and gone between two looks; and what is there."""
        try:
            return os.stat(self._folder).st_mtime_ns, frozenset(os.listdir(self._folder))
        except OSError:
            return 0, frozenset()

    def has_changed(self, now: float) -> bool:
        """Whether a job began or ended since the last call."""
        changed_at, names = self._look()
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
        """Part of the next message to the head; {} where nothing was lately."""
        while self._recent and now - self._recent[0][0] > FRESH_S:
            self._recent.popleft()
        if now - self._told_at > FRESH_S:
            return {}
        return {"turns": {"n": f"{self._run}.{self._count}", "jobs": sorted({job for _, job in self._recent})}}
