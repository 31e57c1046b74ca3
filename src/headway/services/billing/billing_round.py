"""One round of billing for a cluster, every minute and before reports: reads usage into the ledger, enforces budgets and sends
notices."""

from __future__ import annotations

import structlog

from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.services.billing import cost_notifications
from headway.services.billing.budget_enforcement import enforce_budgets
from headway.services.billing.ledger.collector import read_accounting, read_measurements

log = structlog.get_logger("headway.billing")


async def run_billing_round(state: AppState, cluster: Cluster) -> None:
    """Updates the ledger, then acts on it. If a source does not answer, the rest is done all the same and the source is
    read the next time. Raises the error of reading accounting, at the end."""
    name, now = cluster.name, int(state.clock())
    error: HeadwayError | None = None
    try:
        await read_accounting(state, cluster, now)
    except HeadwayError as failure:
        error = failure
        await state.store.ledger_progress.update(name, error=failure.first_line[:300])
    try:
        await read_measurements(state, cluster, now)
    except HeadwayError as failure:
        log.info("measurements not read", cluster=name, error=failure.first_line)
    await enforce_budgets(state, cluster, now)
    if error is None:
        await cost_notifications.record_weekly_summary(state, cluster, now)
    try:
        await cost_notifications.send_pending(state, cluster, now)
    except HeadwayError as failure:
        log.info("notices not sent", cluster=name, error=failure.first_line)
    if error is not None:
        raise error
