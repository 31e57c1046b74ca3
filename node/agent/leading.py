"""Which of two heads leads: the one whose controller writes the heartbeat into the state folder. One alone writes none."""

from __future__ import annotations

import struct
import threading
import time

BEAT_OVER_S = 12.0
LOOK_S = 1.0


class Leading:
    def __init__(self, first: bool, state: str) -> None:
        self._first, self._path = first, f"{state}/heartbeat"
        self._beat = (0, 0)  # unix seconds, and number of who wrote it

    def look(self) -> None:
        """While it is written there is none for a moment: then the last one counts."""
        try:
            with open(self._path, "rb") as file:
                self._beat = struct.unpack(">QQ", file.read(16))
        except (OSError, struct.error):
            return

    def mine(self) -> bool | None:
        """Whether the controller of this head leads; None when nobody is known to."""
        at, number = self._beat
        if abs(time.time() - at) > BEAT_OVER_S:
            return None
        return (number == 0) == self._first


class Looks(threading.Thread):
    """Beside everything else, each second: a folder whose file server is away holds up whoever reads there, and the nodes must
    go on hearing from their head."""

    def __init__(self, leading: Leading) -> None:
        super().__init__(daemon=True)
        self._leading = leading

    def run(self) -> None:
        while True:
            self._leading.look()
            time.sleep(LOOK_S)
