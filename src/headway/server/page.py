"""What the dashboard reads, from memory and the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from headway.api.shapes import check_out, cluster_out, incident_out, job_outs, node_outs
from headway.api.state import AppState
from headway.web.live import Happening
from headway.web.live import Snapshot as PageSnapshot
from headway.web.view import FAULTS
from headway.wire.clusters import ClusterOut, StatusOut
from headway.wire.incidents import IncidentOut


class PageLive:
    """headway.web.live.Live on the server's state."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def clusters(self) -> list[ClusterOut]:
        state = self._state
        return [cluster_out(row, state.live.snapshot(row.name)) for row in await state.store.clusters()]

    async def snapshot(self, name: str) -> PageSnapshot:
        row, cluster = await self._state.cluster(name)
        known = self._state.live.snapshot(name)
        status = StatusOut(
            cluster=cluster_out(row, known),
            checks=[check_out(check) for check in known.checks],
            nodes=node_outs(cluster, known),
        )
        happenings = tuple(
            Happening(notice.at, notice.text, _level(notice.level), notice.where)
            for notice in self._state.live.notices(name)
        )
        return PageSnapshot(
            status, tuple(job_outs(known, self._state.clock())), happenings, await self._incidents(name)
        )

    async def _incidents(self, name: str) -> tuple[IncidentOut, ...]:
        """All of them, those that the page shows with their steps."""
        store = self._state.store
        listed = await store.incidents(name)
        shown = sorted(listed, key=lambda one: one.state.closed)[:FAULTS]
        whole = {one.number: await store.incident(one.number) for one in shown}
        return tuple(incident_out(whole.get(one.number, one)) for one in listed)

    async def subscribe(self, name: str) -> AsyncIterator[None]:
        async for _ in self._state.live.subscribe(name):
            if self._state.live.stopping.is_set() or await self._state.store.cluster(name) is None:
                return
            yield


def _level(word: str) -> Literal["info", "warning", "error"]:
    return "error" if word == "error" else "warning" if word == "warning" else "info"
