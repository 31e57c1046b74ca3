"""What workers do for each cluster in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.store import ClusterRow

log = structlog.get_logger("headway.server.workers")


async def check_each_cluster(state: AppState, what: str, check: Callable[[ClusterRow], Awaitable[None]]) -> None:
    """Awaits `check` for each cluster. An error is logged as one of `what`: it must not delay the other clusters, and the
    database may be unreachable for a while."""
    try:
        rows = await state.store.clusters.all()
    except Exception as error:
        log.warning(what, error=str(error))
        return
    for row in rows:
        try:
            await check(row)
        except Exception as error:
            log.warning(what, cluster=row.name, error=error.message if isinstance(error, HeadwayError) else str(error))
