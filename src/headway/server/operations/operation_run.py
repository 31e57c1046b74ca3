"""The context that an operation's handler receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headway.domain.operation_progress import ReportProgress
from headway.services.app_state import AppState
from headway.store import Operation


@dataclass(frozen=True)
class OperationRun:
    """One run of an operation. `report` adds an event to it. `replanned`: ids of operations whose plan this server has
    already checked again; a second check would find the changes that the operation itself made."""

    state: AppState
    operation: Operation
    report: ReportProgress
    replanned: set[str]


# Carries an operation out. Returns what is stored as its `kept`: files, mount points, or the id of the operation that
# continues it.
Handler = Callable[[OperationRun], Awaitable[tuple[str, ...]]]
