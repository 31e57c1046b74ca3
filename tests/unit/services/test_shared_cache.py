"""What requests share is loaded once, and forgotten."""

from __future__ import annotations

import asyncio

from headway.services.shared_cache import KEPT_S, MAX_ENTRIES, SharedCache


async def one() -> int:
    return 1


async def test_value_that_is_not_asked_for_again_is_dropped() -> None:
    now = [1000.0]
    cache, begun, end = SharedCache(lambda: now[0]), asyncio.Event(), asyncio.Event()

    async def long() -> int:
        begun.set()
        await end.wait()
        return 2

    loading = asyncio.create_task(cache.get("lab/slow", 5, long))
    await begun.wait()
    for job in range(5):
        await cache.get(f"lab/job/{job}", 5, one)
    now[0] += KEPT_S - 1
    await cache.get("lab/job/9", 5, one)
    assert cache.peek("lab/job/0") == 1
    now[0] += KEPT_S / 10
    await cache.get("lab/job/9", 5, one)
    assert [cache.peek(f"lab/job/{job}") for job in (0, 4, 9)] == [None, None, 1]
    end.set()
    assert await loading == 2
    assert cache.peek("lab/slow") == 2


async def test_number_of_values_is_limited() -> None:
    cache = SharedCache(lambda: 1000.0)
    for job in range(MAX_ENTRIES + 2):
        await cache.get(f"lab/job/{job}", 5, one)
    assert cache.peek(f"lab/job/{MAX_ENTRIES - 1}") is None
    assert cache.peek(f"lab/job/{MAX_ENTRIES + 1}") == 1
