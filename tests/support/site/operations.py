"""Operations for the furnished site: one that failed, one in progress, and one that ended long ago."""

from __future__ import annotations

import time

from sqlalchemy import update

from headway.store import Store
from headway.store.db import cluster_schema as t

FAILED = "op-failed"
RUNNING = "op-running"
DONE = "op-done"


async def put(store: Store) -> None:
    """Stores an apply of `half` that failed half-way, and the one that now continues it."""
    error = {
        "kind": "command_failed",
        "message": "half-1-2: podman run ended with 125: no space left on device",
        "hint": "free space on the server's disk, then apply again: headway apply FILE",
    }
    at = time.time()
    done = [
        ("changes", "14 changes", True, 0.8), ("half-head", "is set up", True, 6.2), ("half-1-1", "is set up", True, 7.9),
        ("half-1-2", "podman run ended with 125: no space left on device", True, 2.1),
    ]  # fmt: skip
    await _operation(store, FAILED, "failed", at - 600, done, error)
    now = [("changes", "6 changes", True, 0.6), ("half-1-2", "machine is being created", False, None)]
    await _operation(store, RUNNING, "running", at - 12, now)
    await _operation(store, DONE, "done", at - 86_400, [("demo", "demo is ready", True, 10.7)], cluster="demo")


async def _operation(
    store: Store,
    name: str,
    state: str,
    at: float,
    steps: list[tuple[str, str, bool, float | None]],
    error: dict[str, str] | None = None,
    cluster: str = "half",
) -> None:
    made = await store.operations.enqueue(cluster, "apply", "ann")
    o, e = t.operations, t.events
    values = {
        "state": state,
        "created_at": at,
        "started_at": at,
        "finished_at": at + 11 if state != "running" else None,
        "error": error,
    }
    async with store.database.write() as db:
        # No server of a test claims the running one.
        await db.execute(update(o).where(o.c.id == made.id).values(id=name, lease_until=at + 1e6, **values))
    for step, text, done, seconds in steps:
        level = "error" if error and step == "half-1-2" else "info"
        await store.operations.add_event(name, step, text, level=level, done=done, seconds=seconds)
    async with store.database.write() as db:
        await db.execute(update(e).where(e.c.operation == name).values(at=at))
