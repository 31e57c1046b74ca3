"""Compares all clusters with their files on schedule, reports differences, and repairs them if the file says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headway.domain.changeset import Change
from headway.domain.operation_kinds import ApplyParams
from headway.server.workers.each_cluster import check_each_cluster
from headway.services.app_state import AppState
from headway.services.cluster.drift import disturbs_work, drift_changes, drift_report
from headway.services.cluster.operations import queue_operation
from headway.store import ClusterRow

LOOK_S = 60.0
AGAIN_S = 600.0  # seconds until the next try after a comparison that failed
PERSON = "headway"  # the name under which repairs are queued


class DriftCheck:
    """Plans the file of each ready cluster when its `drift.check` is due and no operation runs."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._failed: dict[str, float] = {}  # cluster -> when a comparison last failed

    async def run(self) -> None:
        """Checks all clusters every LOOK_S seconds, until cancelled."""
        while True:
            await self.check_all()
            await self._pause(LOOK_S)

    async def check_all(self) -> None:
        """Compares the clusters that are due, one after the other."""
        await check_each_cluster(self._state, "comparison with the cluster file", self._check)

    async def _check(self, row: ClusterRow) -> None:
        state, name = self._state, row.name
        if row.state != "ready" or await state.store.operations.active(name):
            return
        cluster = await state.clusters.resolved(row)
        if not self._is_due(row, cluster.drift.check_every_s):
            return
        try:
            changes = await state.backend.lifecycle.plan(cluster)
        except Exception:
            self._failed[name] = state.clock()
            raise
        incidents = await state.store.incidents.search(name, unfinished=True)
        found = drift_changes(changes, {incident.node for incident in incidents})
        if await state.store.operations.active(name):
            return  # it began meanwhile, and may be what the plan saw half-done
        report = drift_report(found, state.clock())
        await state.store.clusters.save_drift(name, report.model_dump())
        state.live.notify_row_changed(name)
        if found:
            await self._report(row, found, ", ".join(report.objects), repair=cluster.drift.repair)

    def _is_due(self, row: ClusterRow, every_s: int) -> bool:
        now = self._state.clock()
        failed_at = self._failed.get(row.name)
        if not every_s or (failed_at is not None and failed_at <= now < failed_at + min(every_s, AGAIN_S)):
            return False
        # the clock may have been ahead at that time
        return row.drift is None or not row.drift["checked_at"] <= now < row.drift["checked_at"] + every_s

    async def _report(self, row: ClusterRow, found: tuple[Change, ...], objects: str, *, repair: bool) -> None:
        """Adds a line to the cluster's history, unless the same differences were reported before, and repairs them."""
        state, name = self._state, row.name
        waits = repair and disturbs_work(found)
        then = "; an apply would disturb jobs or sessions, so a person must start it" if waits else ""
        if repair and not waits:
            await queue_operation(
                state, name, PERSON, ApplyParams(confirmed=False, look_again=True), document=row.document
            )
            then = "; its file is applied again"
        if then or not row.drift or row.drift["changes"] != len(found):
            state.live.add_recent_event(name, f"the cluster differs from its file: {objects}{then}", level="warning")
