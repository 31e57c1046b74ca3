"""Gives memory back to the operating system after large requests."""

from __future__ import annotations

import asyncio
import ctypes
import gc

RELEASE_AFTER_S = 5.0  # seconds after a large request; further ones in this time are released with it
_pending: asyncio.TimerHandle | None = None


def release_memory() -> None:
    """Collects garbage and returns free memory of the allocator. Without this the process keeps the memory of its
    largest request: glibc returns only what lies at the end of its heaps."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # other C libraries have none
        trim(0)


def release_memory_soon() -> None:
    """Calls `release_memory` in a few seconds, once for all requests until then."""
    global _pending
    loop = asyncio.get_running_loop()
    if _pending is None or _pending.cancelled() or _pending.when() <= loop.time():
        _pending = loop.call_later(RELEASE_AFTER_S, release_memory)
