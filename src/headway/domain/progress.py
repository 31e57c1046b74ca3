"""ReportProgress: the callback with which long-running work reports its progress."""

from __future__ import annotations

from typing import Protocol


class ReportProgress(Protocol):
    """Reports progress of long work: a step in progress or, with `done`, its end and duration in seconds."""

    async def __call__(
        self, step: str, text: str, *, level: str = "info", done: bool = False, seconds: float | None = None
    ) -> None: ...
