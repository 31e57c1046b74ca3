"""The progress of work on the files of a dataset version, and how it is stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from headway.errors import HeadwayError


class Stopped(HeadwayError):
    """The work was stopped before it was finished; it can be continued."""


@dataclass
class FileProgress:
    """The progress of the work, read from other threads; setting `stop` ends the work."""

    files: int = 0
    bytes: int = 0
    of_files: int = 0
    of_bytes: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def step(self, count: int) -> None:
        """Adds bytes. Raises Stopped when `stop` is set."""
        self.bytes += count
        if self.stop.is_set():
            raise Stopped("it was stopped")
