"""The state of the MLflow server, as this server knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import httpx

NOT_INSTALLED, STARTING, RUNNING, FAILED = "not installed", "starting", "running", "failed"


@dataclass
class MlflowStatus:
    """`http`: a client that is connected to the MLflow server, while it answers. `workspaces`: those that are known to exist.
    `error`: why it does not run. `locks`: of the journals, by cluster."""

    state: str = NOT_INSTALLED
    error: str = ""
    http: httpx.AsyncClient | None = None
    workspaces: set[str] = field(default_factory=set)
    locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
