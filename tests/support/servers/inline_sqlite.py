"""Runs SQLite in the event loop's own thread, because the switch to a connection's thread and back takes longer than
most statements of these tests, and a query needs four of them. Statements that may wait for another connection's
lock still run in the thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from aiosqlite import core

_in_its_thread = core.Connection._execute


async def _execute(self: core.Connection, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if args and str(args[0]).startswith("BEGIN IMMEDIATE"):
        return await _in_its_thread(self, function, *args, **kwargs)
    if not self._running or not self._connection:
        raise ValueError("Connection closed")
    if args:
        await asyncio.sleep(0)  # lets other tasks run, as they do while a thread works
    return function(*args, **kwargs)


def install() -> None:
    """Applies to all connections that this process opens from now on."""
    core.Connection._execute = _execute  # type: ignore[method-assign]
    opened = partial(sqlite3.connect, check_same_thread=False)
    core.sqlite3 = SimpleNamespace(**{**vars(sqlite3), "connect": opened})  # type: ignore[attr-defined]
