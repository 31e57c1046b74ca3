"""The context that an operation's handler receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.services.app_state import AppState
from headway.store import Operation

if TYPE_CHECKING:  # its libraries are loaded with the first cluster
    from headway.cluster.context import ReportProgress


@dataclass(frozen=True)
class OperationRun:
    """One run of an operation. `say` adds an event to it. `replanned`: ids of operations whose plan this server has checked
    again; begun a second time, they would find their own changes."""

    state: AppState
    operation: Operation
    say: ReportProgress
    replanned: set[str]


# Carries an operation out; returns what the operation's `kept` says: files, mount points, or the operation that continues it.
Handler = Callable[[OperationRun], Awaitable[tuple[str, ...]]]
