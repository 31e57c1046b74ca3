"""Runs on a second head: lists jobs that the first head's controller had accepted but not saved when it stopped.

The controller that takes over loads the saved state and deletes the scripts of jobs that it does not know. This module copies
them as soon as the first head's heartbeat stands still, which is earlier. Once the controller here leads, submissions that
users' sbatch noted and that have no job are written to a list. Which of them had ended is known only to accounting, which is
away with the first head; the first head submits them again when it is back (agent/jobs/queue_recovery.py)."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable

from agent.config import Config
from agent.failover.leader import LeaderFile
from agent.failover.unreachable_first_head import STILL_S
from agent.jobs.queue_recovery import (
    BEGAN,
    DUE,
    SAVED,
    Slurm,
    lost_submissions,
    note_files,
    save_newest_jobs,
    takeover_folder,
    write_atomically,
    write_takeover_list,
)
from agent.jobs.submission_notes import read_bytes
from agent.log import log

LOOK_S = 0.25


class TakeoverRecovery(threading.Thread):
    """Saves job scripts and lists lost submissions on the second head. Its progress is kept in files of the folder, so
    that a restarted agent or a new try continues: SAVED exists until the list is written, and BEGAN holds since when
    the controller here leads."""

    def __init__(self, config: Config, slurm: Callable[[], Slurm] = Slurm, notes: str = "") -> None:
        super().__init__(daemon=True)
        self._state, self._slurm, self._notes = config.state, slurm, notes or note_files(config.cluster)
        self._folder = takeover_folder(config.state)
        self._leading = LeaderFile(config.first, config.state)
        self._beat, self._beat_at = (0, 0), 0.0  # the newest heartbeat, and when it changed on our own clock

    def run(self) -> None:
        while True:
            try:
                self.check(time.monotonic())
            except Exception as error:  # the thread must go on, because nothing else saves these jobs
                log(f"jobs that the first head had not saved: {error}")
            time.sleep(LOOK_S)

    def check(self, now: float) -> None:
        """Does the next step. Raises OSError, ValueError or subprocess.SubprocessError; the next call tries again."""
        self._leading.refresh()
        beat, before = self._leading.beat, self._beat
        if beat != before:
            self._beat, self._beat_at = beat, now
        if os.path.exists(f"{self._folder}/{SAVED}"):
            if beat[1] and not os.path.exists(f"{self._folder}/{BEGAN}"):
                write_atomically(f"{self._folder}/{BEGAN}", str(beat[0]))
            if began := read_bytes(f"{self._folder}/{BEGAN}"):
                self._list(int(began))
            elif before[0] and beat != before:
                self._forget()
        elif beat[0] and not beat[1] and now - self._beat_at >= STILL_S:
            save_newest_jobs(self._state, self._folder)

    def _list(self, began: int) -> None:
        found = lost_submissions(self._slurm(), began, self._notes, self._folder)
        write_takeover_list(found, self._folder)
        for name in (BEGAN, SAVED):
            os.unlink(f"{self._folder}/{name}")
        if found:
            jobs = ", ".join(str(submission.note.job) for submission in found)
            message = f"the first head had accepted jobs without saving them: {jobs}; they are submitted again when it is back"
            # printed directly: `log` drops lines, and this one must not be dropped
            print(message, file=sys.stderr, flush=True)

    def _forget(self) -> None:
        """Removes the copies when the first head's controller went on. A list from before is kept."""
        if os.path.exists(f"{self._folder}/{DUE}"):
            os.unlink(f"{self._folder}/{SAVED}")
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
