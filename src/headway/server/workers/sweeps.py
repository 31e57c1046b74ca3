"""Carries out the sweeps of all clusters, round by round."""

from __future__ import annotations

import asyncio

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState

TICK_S = 1.0  # between two rounds, while a sweep runs
IDLE_TICK_S = 5.0  # between two looks for sweeps that another server has stored

log = structlog.get_logger("headway.server.sweeps")


class SweepWorker:
    """Does a round of each sweep that has not ended."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def run(self) -> None:
        """Does rounds until cancelled."""
        while True:
            self._state.sweeps_due.clear()
            busy = False
            try:
                busy = await self.advance_all()
            except Exception as error:
                log.error("sweeps", exc_info=error)
            try:
                async with asyncio.timeout(TICK_S if busy else IDLE_TICK_S):
                    await self._state.sweeps_due.wait()
            except TimeoutError:
                continue

    async def advance_all(self) -> bool:
        """Does one round of each sweep. Returns whether there are any."""
        rows = await self._state.store.sweeps.unfinished()
        if rows:
            from headway.services.sweeps.rounds import advance_sweep

            for row in rows:
                try:
                    await advance_sweep(self._state, row)
                except HeadwayError as error:
                    log.warning("a round of a sweep failed", sweep=row.id, error=error.message)
                except Exception as error:
                    log.error("a round of a sweep failed", sweep=row.id, exc_info=error)
        return bool(rows)
