"""Counts the requests and tokens of services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.store import ServiceRow

EVERY_S = 5.0
DELETE_S = 3600.0  # between two deletions of old figures and events

log = structlog.get_logger("headway.server.services")


class ServiceMetrics:
    """Reads the figures of all clusters that have services."""

    def __init__(self, state: AppState, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._state = state
        self._pause = pause
        self._deleted = 0.0

    async def run(self) -> None:
        """Reads until cancelled."""
        while True:
            try:
                await self.collect_all()
            except Exception as error:
                log.error("metrics of services", exc_info=error)
            await self._pause(EVERY_S)

    async def collect_all(self) -> None:
        """Reads what is new on each cluster, all at the same time. Once an hour, deletes what is too old."""
        if (now := self._state.clock()) >= self._deleted + DELETE_S:
            await self._state.store.service_figures.delete_old()
            await self._state.store.services.delete_old_events()
            self._deleted = now
        rows = await self._state.store.services.running()
        of_clusters = {name: list(some) for name, some in groupby(rows, lambda row: row.cluster)}
        await asyncio.gather(*(self._collect(name, some) for name, some in of_clusters.items()))

    async def _collect(self, cluster: str, rows: list[ServiceRow]) -> None:
        from headway.services.serving.metrics import collect_service_metrics

        try:
            await collect_service_metrics(self._state, cluster, rows)
        except HeadwayError as error:
            log.warning("metrics of services", cluster=cluster, error=error.message)
        except Exception as error:
            log.error("metrics of services", cluster=cluster, exc_info=error)
