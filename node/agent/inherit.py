"""On a second head: jobs that the first one's controller had accepted and not written down when it fell silent.

The controller that takes over reads what is written, and deletes the scripts of jobs that it does not know. So they are copied as
soon as the first one's heartbeat stands still, which is before. Once the controller here leads, what people's sbatch noted and it
has no job of is written down beside them. Which of these had ended only accounting knows, which went with the first head:
they are submitted again when that one is back (recall.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from .away import STILL_S
from .config import Config
from .leading import Leading
from .recall import DUE, NOTES, Slurm, hand_on, handed_in, keep, lost
from .say import say

LOOK_S = 0.25


class Heir(threading.Thread):
    def __init__(self, config: Config, slurm: Callable[[], Slurm] = Slurm, notes: str = NOTES) -> None:
        super().__init__(daemon=True)
        self._state, self._slurm, self._notes = config.state, slurm, notes
        self._folder = handed_in(config.state)
        self._leading = Leading(config.first, config.state)
        self._beat, self._beat_at = (0, 0), 0.0  # the last one that was another than before, and when on our own clock
        self._kept = False

    def run(self) -> None:
        while True:
            try:
                self.look(time.monotonic())
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                say(f"what the first head had not written down: {error}")
                self._kept = False
            time.sleep(LOOK_S)

    def look(self, now: float) -> None:
        """Raises OSError, or what asking the controller raises."""
        self._leading.look()
        beat = self._leading.beat
        if beat != self._beat:
            self._beat, self._beat_at = beat, now
            if self._kept:
                self._kept = False
                self._list() if beat[1] else self._forget()
        elif beat[0] and not beat[1] and not self._kept and now - self._beat_at >= STILL_S:
            keep(self._state, self._folder)
            self._kept = True

    def _list(self) -> None:
        found = lost(self._slurm(), self._beat[0], self._notes, self._folder)
        hand_on(found, self._folder)
        if found:
            jobs = ", ".join(str(one.note.job) for one in found)
            told = f"the first head had not written down what it had accepted: {jobs}; submitted again when it is back"
            print(told, file=sys.stderr, flush=True)  # once: `say` drops lines, and this would make it drop others

    def _forget(self) -> None:
        """It went on. What is on the list from before stays."""
        if not os.path.exists(f"{self._folder}/{DUE}"):
            shutil.rmtree(self._folder, ignore_errors=True)
