"""Notebooks for the furnished site: two of alice's in `demo`, one that runs and one that waits."""

from __future__ import annotations

import time
from typing import Any

from tests.support.server_fakes import FakeBackend

from headway.store import NotebookRow, Store

RUNNING, WAITING = "a" * 16, "b" * 16


class _Listening:
    """A tunnel to a Jupyter that accepts connections."""

    alive = True

    async def connect(self) -> Any:
        return self

    async def close(self) -> None: ...


async def put(store: Store, work: FakeBackend, running: int, waiting: int) -> None:
    """Stores two notebooks; `running` and `waiting` are the numbers of alice's jobs."""
    work.answers["open_tunnel"] = _Listening()
    for notebook, job in ((RUNNING, running), (WAITING, waiting)):
        folder = f"/scratch/alice/.headway/notebooks/{notebook}"
        await store.notebooks.save(
            NotebookRow(notebook, "demo", job, "alice", "alice", folder, "secret", 3600, time.time() - job)
        )
