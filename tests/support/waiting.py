"""Waits of tests for something that other tasks or processes bring about, each with an end."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 60.0  # generous: a test asserts what happens, never how fast


async def eventually(condition: Callable[[], object | Awaitable[object]], pause_s: float = 0.001) -> None:
    """Returns once the condition, a function or a coroutine function, is true; lets other tasks run meanwhile.

    Raises TimeoutError after a minute."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            reached = condition()
            if inspect.isawaitable(reached):
                reached = await reached
            if reached:
                return
            await asyncio.sleep(pause_s)


def wait_until(look: Callable[[], T], what: str, why: Callable[[], str], deadline_s: float = DEADLINE_S) -> T:
    """Returns the first true answer of `look`, which is asked again and again in this thread.

    Raises AssertionError with `why` after the deadline."""
    end = time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < end, f"waited {deadline_s:g} s for {what}: {why()}"
        time.sleep(0.02)
    return found
