"""Implements web.live_data.Live: provides the dashboard's data from memory and the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Literal

from headway.schemas.clusters import ClusterOut, StatusOut
from headway.schemas.incidents import IncidentOut
from headway.services.app_state import AppState
from headway.services.mappers import check_out, cluster_out, incident_out, node_outs
from headway.services.read_model.snapshot import cluster_topic
from headway.web.live_data import Happening
from headway.web.live_data import Snapshot as PageSnapshot
from headway.web.views.cluster import FAULTS

SHARED_S = 1.0  # seconds after which data without change notifications, such as incidents, is read again


class PageLive:
    """headway.web.live_data.Live based on the server's state."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._shown: dict[str, tuple[int, float, asyncio.Future[PageSnapshot]]] = {}  # (version, valid until, snapshot)

    @property
    def streams(self) -> asyncio.Semaphore:
        """Returns the semaphore that limits how many streams are updated at a time."""
        return self._state.live.stream_slots

    async def clusters(self) -> list[ClusterOut]:
        """Returns all clusters with their last readings."""
        state = self._state
        return [cluster_out(row, state.live.snapshot(row.name)) for row in await state.store.clusters.all()]

    async def snapshot(self, name: str) -> PageSnapshot:
        """Returns the cluster's current state. All pages that wait for the same change share one read."""
        change = self._state.live.hub.version(cluster_topic(name))
        known = self._shown.get(name)
        if known is None or known[0] != change or time.monotonic() >= known[1]:
            asked = asyncio.ensure_future(self._read(name))
            known = self._shown[name] = (change, time.monotonic() + SHARED_S, asked)
            asked.add_done_callback(lambda done: self._forget(name, done))
        return await asyncio.shield(known[2])

    def _forget(self, name: str, done: asyncio.Future[PageSnapshot]) -> None:
        """Drops a failed or cancelled read, so that it is retried and clusters that do not exist leave nothing in memory."""
        known = self._shown.get(name)
        if (done.cancelled() or done.exception()) and known is not None and known[2] is done:
            del self._shown[name]

    async def _read(self, name: str) -> PageSnapshot:
        row, cluster = await self._state.clusters.get(name)
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
        every, _ = await self._state.store.incidents.counts(name)
        return PageSnapshot(status, known.jobs, happenings, await self._incidents(name), every, known.progress)

    async def _incidents(self, name: str) -> tuple[IncidentOut, ...]:
        """Returns the open incidents and the most recent ones; those that the page shows include their steps."""
        store = self._state.store
        listed = await store.incidents.open_and_recent(name, FAULTS)
        shown = sorted(listed, key=lambda one: one.state.closed)[:FAULTS]
        whole = {one.number: await store.incidents.get(one.number) for one in shown}
        return tuple(incident_out(whole.get(one.number, one)) for one in listed)

    async def subscribe(self, name: str) -> AsyncIterator[None]:
        """Yields whenever the cluster's data changes; ends when the cluster is gone or the server stops."""
        async for _ in self._state.live.watch_changes(name):
            if self._state.live.stopping.is_set() or await self._state.store.clusters.get(name) is None:
                return
            yield


def _level(word: str) -> Literal["info", "warning", "error"]:
    return "error" if word == "error" else "warning" if word == "warning" else "info"
