"""Tells which of two heads leads: the one whose controller writes the heartbeat into the state folder. A cluster with one head
has no such file.

A controller that led, then hung with its machine or lost the folder, and continues after the other one took over, would schedule
beside it from an outdated queue. Whichever controller begins to lead therefore writes a new name (render/ha/failback.py). When a
head finds another name than its own, it ends its controller without saving the queue; systemd starts it again as a standby.

A name ends with the folder that its controller works in, which differs from the configured one while a move of the folder is
under way or has failed."""

from __future__ import annotations

import struct
import subprocess
import threading
import time

from agent.journal import log

BEAT_OVER_S = 12.0
LOOK_S = 1.0
OURS = "/run/slurmctld/leads"  # goes with the process


class LeaderFile:
    def __init__(self, first: bool, state: str) -> None:
        self._first, self._path = first, f"{state}/heartbeat"
        self.beat = (0, 0)  # unix seconds, and number of who wrote it

    def refresh(self) -> None:
        """While it is written there is none for a moment: then the last one counts."""
        try:
            with open(self._path, "rb") as file:
                self.beat = struct.unpack(">QQ", file.read(16))
        except (OSError, struct.error):
            return

    def is_this_head(self) -> bool | None:
        """Whether the controller of this head leads; None when nobody is known to."""
        at, number = self.beat
        if abs(time.time() - at) > BEAT_OVER_S:
            return None
        return (number == 0) == self._first


class LeaderMonitor(threading.Thread):
    """Beside everything else, each second: a folder whose file server is away holds up whoever reads there, and the nodes must
    go on hearing from their head."""

    def __init__(self, leading: LeaderFile, ours: str = OURS) -> None:
        super().__init__(daemon=True)
        self._leading, self._ours = leading, ours
        self._doubts = 0  # looks in a row at which another one leads

    def run(self) -> None:
        while True:
            self.check()
            time.sleep(LOOK_S)

    def check(self) -> bool:
        """Whether this head's controller was ended: at the second look that says so, for two files are not written at once."""
        self._leading.refresh()
        ours = _line(self._ours)
        _, _, state = ours.rpartition(" ")
        theirs = _line(f"{state}/leads") if state.startswith("/") else ""
        self._doubts = self._doubts + 1 if ours and theirs and ours != theirs else 0
        if self._doubts < 2:
            return False
        log(f"the controller here leads no more, {theirs.split()[0]} does: it is ended")
        _end()
        self._doubts = 0
        return True


def _line(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(8192).strip()
    except OSError:
        return ""


def _end() -> None:
    argv = ["systemctl", "kill", "--signal=KILL", "slurmctld.service"]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log(f"slurmctld could not be ended: {error}")
