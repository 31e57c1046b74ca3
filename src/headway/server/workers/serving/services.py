"""Carries out the services of all clusters, round by round."""

from __future__ import annotations

import asyncio
from itertools import groupby

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.store import ServiceRow

TICK_S = 1.0  # between two rounds, while a service runs
IDLE_TICK_S = 5.0  # between two looks for services that another server has stored

log = structlog.get_logger("headway.server.services")


class ServiceWorker:
    """Does a round of the services of each cluster that has some."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def run(self) -> None:
        """Does rounds until cancelled."""
        while True:
            self._state.services_due.clear()
            busy = False
            try:
                busy = await self.advance_all()
            except Exception as error:
                log.error("services", exc_info=error)
            try:
                async with asyncio.timeout(TICK_S if busy else IDLE_TICK_S):
                    await self._state.services_due.wait()
            except TimeoutError:
                continue

    async def advance_all(self) -> bool:
        """Does one round for each cluster, all at the same time. Returns whether there are services."""
        rows = await self._state.store.services.running()
        of_clusters = {name: list(some) for name, some in groupby(rows, lambda row: row.cluster)}
        await asyncio.gather(*(self._advance(name, some) for name, some in of_clusters.items()))
        return bool(rows)

    async def _advance(self, cluster: str, rows: list[ServiceRow]) -> None:
        from headway.services.serving.rounds import advance_services

        try:
            await advance_services(self._state, cluster, rows)
        except HeadwayError as error:
            log.warning("a round of services failed", cluster=cluster, error=error.message)
            for row in rows:
                if row.state == "running" and row.why != error.message:
                    await self._state.store.services.change(row.id, why=error.message)
        except Exception as error:
            log.error("a round of services failed", cluster=cluster, exc_info=error)
