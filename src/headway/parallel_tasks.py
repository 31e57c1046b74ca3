"""Runs coroutines in parallel and ends them together. Imports only asyncio: the command line and the server use it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs all coroutines and returns their results in the same order. An exception cancels the others and is raised once
    they have stopped; so does a cancellation of the caller."""
    # No TaskGroup: in Python 3.11 it leaves the caller's task marked as cancelled after a failure. The worker of operations
    # would take that for a server that stops, and asyncio.timeout would not raise TimeoutError.
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
