"""The callbacks of long-running work: to report its progress, and to ask whether another operation waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

OperationWaits = Callable[[], Awaitable[bool]]  # returns whether another operation of the cluster must run


class ReportProgress(Protocol):
    """Reports progress of long work: a step in progress or, with `done`, its end and duration in seconds."""

    async def __call__(
        self, step: str, text: str, *, level: str = "info", done: bool = False, seconds: float | None = None
    ) -> None: ...
