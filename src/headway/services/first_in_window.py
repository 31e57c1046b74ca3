"""Which events of a kind are the first for some time, so that a flood of them is no flood of lines in a log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

MAX_KEYS = 10_000


class FirstInWindow:
    """Remembers the time of the first event of each key. The oldest keys are dropped first."""

    def __init__(self) -> None:
        self._since: OrderedDict[Hashable, float] = OrderedDict()

    def is_first(self, key: Hashable, now: float, window_s: float) -> bool:
        """Returns whether the key had no first event within `window_s` before `now`."""
        if now - self._since.get(key, now - window_s) < window_s:
            return False
        self._since.pop(key, None)
        self._since[key] = now
        while len(self._since) > MAX_KEYS:
            self._since.popitem(last=False)
        return True
