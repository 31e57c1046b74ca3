"""Queues the scheduled fabric tests of all clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headway.domain.operation_kinds import FabricTestParams, OperationKind
from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.services.cluster.operations import queue_operation
from headway.store import ClusterRow, OperationAsk

LOOK_S = 60.0
AGAIN_S = 3600.0  # seconds until the next try after a test that failed, for example because too few nodes were idle
PERSON = "headway"  # the name under which scheduled tests are queued


class FabricTestSchedule:
    """Queues a fabric test of each cluster with `health.fabric_test` in its file, when it is due and nodes are idle."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause

    async def run(self) -> None:
        """Checks all clusters every LOOK_S seconds, until cancelled."""
        while True:
            await self.check_all()
            await self._pause(LOOK_S)

    async def check_all(self) -> None:
        """Queues the tests that are due now."""
        await check_each_cluster(self._state, "scheduled fabric test", self._check)

    async def _check(self, row: ClusterRow) -> None:
        state, name = self._state, row.name
        rules = row.document.get("spec", {}).get("health")
        if row.state != "ready" or not isinstance(rules, dict) or not rules.get("fabric_test"):
            return
        cluster = await state.clusters.resolved(row)
        every_s = cluster.health.fabric_test_every_s
        idle = sum(node.states == ("IDLE",) for node in state.live.snapshot(name).nodes)
        if not every_s or idle < 2 or await state.store.operations.active(name):
            return
        if await self._is_due(name, every_s):
            await queue_operation(state, name, PERSON, FabricTestParams(scheduled=True))

    async def _is_due(self, name: str, every_s: int) -> bool:
        """Returns whether the last test, of the schedule or of a person, is long enough ago."""
        ask = OperationAsk(name, {OperationKind.FABRIC_TEST.value})
        found = await self._state.store.operations.search(ask, limit=1)
        now = self._state.clock()
        if not found or found[0].created_at > now:  # the clock was ahead at that time
            return True
        return now >= found[0].created_at + (every_s if found[0].state == "done" else min(every_s, AGAIN_S))
