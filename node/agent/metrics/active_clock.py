"""A clock of the time in which the agent itself ran."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_S = 3.0  # longest normal time between two rounds; during any more the agent itself was not running


class ActiveClock:
    """A monotonic clock that leaves out the time in which this agent did not run. If the machine was suspended, or
    overloaded for minutes, it is unknown whether its driver, MUNGE or a disk would have answered meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._missed = 0.0

    def __call__(self) -> float:
        return self._clock() - self._missed

    def tick(self) -> float:
        """Returns the time now. Call it at the beginning of each round."""
        now = self._clock()
        self._missed += max(0.0, now - self._looked - MOST_S)
        self._looked = now
        return now - self._missed
