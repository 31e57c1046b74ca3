"""The loop that keeps every cluster's ledger up to date, one cluster after the other."""

from __future__ import annotations

import asyncio

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.billing.ledger.collector import ROUND_EVERY_S
from headway.services.billing.ledger.daily_rollups import sum_days
from headway.services.billing.ledger.ledger_refresh import ensure_ledger_fresh

FIRST_S = 20.0  # seconds after the server's start, so that the first requests of people are not delayed

log = structlog.get_logger("headway.billing")


class BillingWorker:
    """Updates the ledgers periodically."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._silent: set[str] = set()  # clusters whose accounting did not answer

    async def run(self) -> None:
        """Updates all ledgers every ROUND_EVERY_S seconds, until cancelled."""
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.step()
            except Exception as error:  # the database may be unreachable for a while
                log.warning("ledger", error=str(error))
            await asyncio.sleep(ROUND_EVERY_S)

    async def step(self) -> None:
        """Updates the ledger of every cluster that is ready, failed or degraded once."""
        for row in await self._state.store.clusters.all():
            if row.state not in {"ready", "failed", "degraded"}:
                continue
            try:
                await ensure_ledger_fresh(self._state, await self._state.clusters.resolved(row))
                await sum_days(self._state.store, row.name, int(self._state.clock()))
            except (HeadwayError, TimeoutError, OSError) as error:
                if row.name not in self._silent:
                    log.warning("accounting is not read", cluster=row.name, error=str(error) or type(error).__name__)
                self._silent.add(row.name)
            except Exception as error:
                log.error("ledger", cluster=row.name, exc_info=error)
            else:
                if row.name in self._silent:
                    log.info("accounting is read again", cluster=row.name)
                self._silent.discard(row.name)
