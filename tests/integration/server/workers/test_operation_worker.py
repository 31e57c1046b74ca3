"""The worker of operations ends when it is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headway.server.workers.operation_worker import OperationWorker
from tests.support.clusters import builders
from tests.support.servers import server_fakes


async def test_worker_that_is_woken_and_cancelled_at_once_ends(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    server = await server_fakes.start(tmp_path / "state", builders.Clock())
    try:
        idle = asyncio.Event()
        known = server.state.store.operations.claim

        async def claim(*arguments: object) -> None:
            await known(*arguments)  # type: ignore[arg-type]
            idle.set()

        server.state.store.operations.claim = claim  # type: ignore[method-assign, assignment]
        worker = asyncio.create_task(OperationWorker(server.state, "test:1").run())
        await idle.wait()
        await asyncio.sleep(0)  # the worker waits for work now
        await asyncio.sleep(0)
        server.state.wake.set()
        await asyncio.sleep(0)
        worker.cancel()
        ended, _ = await asyncio.wait({worker}, timeout=30)
        assert ended, "the cancellation was lost"
    finally:
        worker.cancel()
        await server.close()
