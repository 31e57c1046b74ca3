"""Coroutines that run in parallel end together, and their failure does not mark the caller's task as cancelled."""

from __future__ import annotations

import asyncio

import pytest

from headway.errors import Refused
from headway.parallel_tasks import run_all


async def _result(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def _fail() -> int:
    await asyncio.sleep(0)
    raise Refused("the disk is full")


class _Endless:
    """Work that ends only when it is cancelled, and takes a few steps for that."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = False

    async def run(self) -> int:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended = True
        raise AssertionError


async def test_results_come_in_the_order_of_the_coroutines() -> None:
    assert await run_all(_result(number) for number in (3, 1, 2)) == [3, 1, 2]
    assert await run_all(()) == []


async def test_a_failure_ends_the_others_and_leaves_the_task_uncancelled() -> None:
    other = _Endless()
    with pytest.raises(Refused, match="the disk is full"):
        await run_all([other.run(), _fail()])
    assert other.ended
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling(), "otherwise the worker takes an operation for one that a stopping server interrupts"


async def test_a_time_limit_that_passes_after_a_failure_is_a_timeout() -> None:
    async def fail_and_wait() -> None:
        async with asyncio.timeout(None) as limit:
            with pytest.raises(Refused):
                await run_all([_fail()])
            limit.reschedule(0)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await fail_and_wait()


async def test_cancellation_of_the_caller_ends_all() -> None:
    works = [_Endless(), _Endless()]
    task = asyncio.create_task(run_all(work.run() for work in works))
    for work in works:
        await work.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(work.ended for work in works)
