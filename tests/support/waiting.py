"""Waits of tests for something that other tasks or processes bring about, each with an end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

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
