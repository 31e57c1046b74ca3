"""Notebooks for the furnished site: two of alice's in `demo`, one that runs and one that waits."""

from __future__ import annotations

import time

from headway.store import NotebookRow, Store
from tests.support.clusters.fake_backend import FakeBackend
from tests.support.servers.server_fakes import ListeningTunnel

RUNNING, WAITING = "a" * 16, "b" * 16


async def put(store: Store, work: FakeBackend, running: int, waiting: int) -> None:
    """Stores two notebooks; `running` and `waiting` are the numbers of alice's jobs."""
    work.answers["open_tunnel"] = ListeningTunnel()
    for notebook, job in ((RUNNING, running), (WAITING, waiting)):
        folder = f"/scratch/alice/.headway/notebooks/{notebook}"
        await store.notebooks.save(
            NotebookRow(notebook, "demo", job, "alice", "alice", folder, "secret", 3600, time.time() - job)
        )
