"""Token buckets, one per key, that limit how often something happens. They are kept in memory."""

from __future__ import annotations

import math


class TokenBuckets:
    """One bucket per key: it holds `size` tokens at first and at most, and gets `size` tokens a minute."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._refill_per_s = size / 60
        self._buckets: dict[str, tuple[float, float]] = {}  # key -> (tokens, time of that count)

    def take(self, key: str, now: float, count: int = 1) -> int:
        """Takes `count` tokens and returns 0; if the bucket holds less than one token, takes none and returns the seconds
        until it holds one. A bucket may be overdrawn, so that a large request is delayed and not refused for ever."""
        tokens, since = self._buckets.get(key, (float(self.size), now))
        tokens = min(float(self.size), tokens + max(0.0, now - since) * self._refill_per_s)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            return max(1, math.ceil((1 - tokens) / self._refill_per_s))
        self._buckets[key] = (tokens - count, now)
        return 0
