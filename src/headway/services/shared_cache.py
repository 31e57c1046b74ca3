"""A cache of results that all requests share, so that Slurm and the database are queried once for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

MAX_ENTRIES = 500
KEPT_S = 600.0  # the longest time for which a value is used; older ones are dropped
T = TypeVar("T")


@dataclass
class _Entry:
    loaded_at: float = float("-inf")
    value: Any = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class SharedCache:
    """Values by key, each loaded by one caller at a time. Keys begin with the cluster's name and a slash."""

    clock: Callable[[], float] = time.time
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _dropped_at: float = float("-inf")

    async def get(self, key: str, max_age_s: float, load: Callable[[], Awaitable[T]]) -> T:
        """Returns the value under `key` if it is younger than `max_age_s`, otherwise what `load` returns. Callers that
        come while it is being loaded wait for that value. Exceptions of `load` are raised and not stored."""
        self._drop_old_entries()
        entry = self._entries.setdefault(key, _Entry())
        async with entry.lock:
            if not 0 <= self.clock() - entry.loaded_at < max_age_s:
                entry.value = await load()
                entry.loaded_at = self.clock()
            value: T = entry.value
            return value

    def _drop_old_entries(self) -> None:
        """Drops what was loaded before KEPT_S seconds, and everything if there are too many entries; not what is being
        loaded."""
        now, many = self.clock(), len(self._entries) > MAX_ENTRIES
        if many or not 0 <= now - self._dropped_at < KEPT_S / 10:
            self._dropped_at = now
            self._entries = {
                name: kept
                for name, kept in self._entries.items()
                if kept.lock.locked() or (not many and now - kept.loaded_at < KEPT_S)
            }

    def peek(self, key: str) -> Any:
        """Returns the value under `key` at any age, or None."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def forget_cluster(self, name: str) -> None:
        """Drops all values of a cluster."""
        self._entries = {key: entry for key, entry in self._entries.items() if not key.startswith(f"{name}/")}


class SharedReads(Generic[T]):
    """Reads by cluster that all callers share which wait for the same change. Failed ones are not kept."""

    def __init__(self) -> None:
        self._reads: dict[str, tuple[int, float, asyncio.Future[T]]] = {}

    async def get(self, name: str, version: int, max_age_s: float, load: Callable[[], Awaitable[T]]) -> T:
        """Returns what `load` returned for this version of the cluster, if that is younger than `max_age_s`; loads it
        otherwise. Raises the errors of `load`."""
        known = self._reads.get(name)
        if known is None or known[0] != version or time.monotonic() >= known[1]:
            reading = asyncio.ensure_future(load())
            known = self._reads[name] = (version, time.monotonic() + max_age_s, reading)
            reading.add_done_callback(partial(self._drop_failed, name))
        return await asyncio.shield(known[2])

    def last(self, name: str) -> T | None:
        """Returns what was read last, at any age; None if nothing was, or if the read has not ended."""
        known = self._reads.get(name)
        return known[2].result() if known is not None and _succeeded(known[2]) else None

    def forget(self, name: str) -> None:
        """Drops what was read of a cluster."""
        self._reads.pop(name, None)

    def _drop_failed(self, name: str, done: asyncio.Future[T]) -> None:
        known = self._reads.get(name)
        if not _succeeded(done) and known is not None and known[2] is done:
            del self._reads[name]


def _succeeded(reading: asyncio.Future[Any]) -> bool:
    return reading.done() and not reading.cancelled() and reading.exception() is None
