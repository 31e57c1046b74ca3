"""Sends secrets of jobs to the heads that do not have the newest ones: a head that was away when one was changed, and the heads
of a cluster whose secrets another server has changed, or whose users or teams have changed."""

from __future__ import annotations

import asyncio

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.job_secrets.delivery import deliver_secrets, delivery_mark

TICK_S = 5.0
AGAIN_S = 30.0  # seconds until a head that was not reached is tried again
_WORKS = frozenset({"ready", "failed", "changing"})

log = structlog.get_logger("headway.server.job_secret_delivery")


class JobSecretDelivery:
    """Compares what is stored with what was delivered."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._due: dict[str, float] = {}  # cluster -> when it may be tried again, on the event loop's clock

    async def run(self) -> None:
        """Delivers until cancelled."""
        while True:
            try:
                await self.deliver_due(asyncio.get_running_loop().time())
            except Exception as error:
                log.error("secrets of jobs", exc_info=error)
            await asyncio.sleep(TICK_S)

    async def deliver_due(self, now: float) -> None:
        """Delivers to each cluster whose heads may lack the newest secrets."""
        state = self._state
        revisions = await state.store.job_secrets.revisions()
        if not revisions:
            return
        for row in await state.store.clusters.all():
            if row.name not in revisions or row.state not in _WORKS or now < self._due.get(row.name, 0.0):
                continue
            try:
                cluster = await state.clusters.resolved(row)
                if state.delivered_secrets.get(row.name) == delivery_mark(cluster, revisions[row.name]):
                    continue
                self._due[row.name] = now + AGAIN_S
                away = await deliver_secrets(state, cluster)
            except HeadwayError as error:
                log.warning("secrets of jobs are not delivered", cluster=row.name, error=error.message)
                continue
            if away:
                log.info("secrets of jobs wait for heads", cluster=row.name, heads=list(away))
            else:
                self._due.pop(row.name, None)
