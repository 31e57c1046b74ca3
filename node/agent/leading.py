"""Which of two heads leads: the one whose controller writes the heartbeat into the state folder. One alone writes none."""

from __future__ import annotations

import struct
import time

HEARTBEAT = "/srv/headway-state/slurmctld/heartbeat"
BEAT_OVER_S = 12.0


class Leading:
    def __init__(self, first: bool, path: str = HEARTBEAT) -> None:
        self._first, self._path = first, path
        self._at = self._number = 0

    def look(self) -> None:
        """Seconds, and number of who writes it. While it is written there is none for a moment: then the last one counts."""
        try:
            with open(self._path, "rb") as file:
                self._at, self._number = struct.unpack(">QQ", file.read(16))
        except (OSError, struct.error):
            return

    def mine(self) -> bool | None:
        """Whether the controller of this head leads; None when nobody is known to."""
        if abs(time.time() - self._at) > BEAT_OVER_S:
            return None
        return (self._number == 0) == self._first
