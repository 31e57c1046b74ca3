"""Finds which of two heads leads: the one whose controller writes the heartbeat into the StateSaveLocation. A cluster
with one head has no such file.

A controller that led, then hung with its machine or lost the folder, and continues after the other one took over, would
schedule from an outdated queue in parallel with the other. Each controller that begins to lead therefore writes a new
name (render/ha/single_active_head.py). When a head finds another name than its own, it kills its controller, which then does not
save its queue; systemd starts it again as a standby.

A name ends with the folder in which its controller works, which differs from the configured one while a move of the
folder is in progress or has failed."""

from __future__ import annotations

import struct
import subprocess
import threading
import time

from agent.log import log

BEAT_OVER_S = 12.0  # three times SlurmctldTimeout: SLURMCTLD_TIMEOUT_S of render/ha/takeover_settings.py
LOOK_S = 1.0
OURS = "/run/slurmctld/leads"  # in slurmctld's RuntimeDirectory, which is removed when it ends


class LeaderFile:
    """Reads slurmctld's heartbeat file. `first`: whether this is the first head. `state`: the StateSaveLocation."""

    def __init__(self, first: bool, state: str) -> None:
        self._first, self._path = first, f"{state}/heartbeat"
        self.beat = (0, 0)  # (Unix seconds, index of the controller that wrote it)

    def refresh(self) -> None:
        """Reads the heartbeat. While the file is being replaced it is missing for a moment; the last heartbeat then
        counts."""
        try:
            with open(self._path, "rb") as file:
                self.beat = struct.unpack(">QQ", file.read(16))
        except (OSError, struct.error):
            return

    def is_this_head(self) -> bool | None:
        """Returns whether the controller of this head leads; None when no heartbeat is newer than BEAT_OVER_S."""
        at, number = self.beat
        if abs(time.time() - at) > BEAT_OVER_S:
            return None
        return (number == 0) == self._first


class LeaderMonitor(threading.Thread):
    """Checks each second that this head's controller may still lead. It has a thread of its own: reading a folder whose
    file server is away blocks, and meanwhile the nodes must still get answers from the head."""

    def __init__(self, leading: LeaderFile, ours: str = OURS) -> None:
        super().__init__(daemon=True)
        self._leading, self._ours = leading, ours
        self._doubts = 0  # checks in a row at which the other head leads

    def run(self) -> None:
        while True:
            self.check()
            time.sleep(LOOK_S)

    def check(self) -> bool:
        """Ends this head's controller when the other head leads, and returns whether it did. It does so at the second
        check in a row, because the two files are not written at the same moment."""
        self._leading.refresh()
        ours = _line(self._ours)
        _, _, state = ours.rpartition(" ")
        theirs = _line(f"{state}/leads") if state.startswith("/") else ""
        self._doubts = self._doubts + 1 if ours and theirs and ours != theirs else 0
        if self._doubts < 2:
            return False
        log(f"{theirs.split()[0]} is the active head now: the controller on this head is ended")
        _end()
        self._doubts = 0
        return True


def _line(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(8192).strip()
    except OSError:
        return ""


def _end() -> None:
    argv = ["systemctl", "kill", "--signal=KILL", "slurmctld.service"]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log(f"slurmctld could not be ended: {error}")
