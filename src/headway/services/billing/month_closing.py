"""Closes the invoices of months."""

from __future__ import annotations

from dataclasses import asdict

from headway.billing import chargeback, cluster_invoice
from headway.billing.periods import Period, month_of, time_zone
from headway.errors import Conflict, NotFound, Refused
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.ledger.ledger_refresh import refresh_ledger
from headway.services.billing.monthly_bill import compute_chargeback, join_to_last_closed, month_after, packed_settings
from headway.services.billing.reports.report_scope import BilledCluster
from headway.store import InvoiceRow


async def close_month(state: AppState, who: Principal, billed: BilledCluster, period: Period) -> InvoiceRow:
    """Closes the month's invoice permanently and returns it as it is stored. Later changes become corrections on the next
    one.

    Raises Refused while accounting cannot be read and before the month is over, NotFound for a month before the first
    machine, and Conflict if an earlier month is not closed, accounting could not be read, or it is closed already;
    SignInAgain."""
    who.require_recent_sign_in(state.clock(), f"close the month of {billed.name}")
    if stale := await refresh_ledger(state, billed):
        raise Refused(
            f"accounting of {billed.name} can't be read: {stale}", hint="close it when accounting works again"
        )
    if period.end > billed.now:
        raise Refused(f"{period.name} is not over yet", hint="close its invoice when the month has ended")
    mark = await state.store.ledger_progress.get(billed.name)
    if billed.cluster is not None and mark.error:
        raise Conflict(
            f"accounting of {billed.name} could not be read: {mark.error}", hint="close it when accounting works again"
        )
    due = await _next_to_close(state, billed)
    if period.start > due.start:
        raise Conflict(f"{due.name} is not closed yet", hint="close months in order")
    if period.start < due.start and period.name not in {
        row.period for row in await state.store.invoices.of_cluster(billed.name)
    }:
        raise NotFound(f"{billed.name} had no machine in {period.name}", hint=f"its first month is {due.name}")
    found = await compute_chargeback(state, billed, await join_to_last_closed(state, billed, period))
    document = {
        "invoice": cluster_invoice.packed(found.invoice),
        "chargeback": chargeback.packed(found),
        "timezone": billed.costs.timezone,
        "rules": asdict(billed.rules),
        "settings": packed_settings(billed.costs.invoice),
    }
    row = await state.store.invoices.close(billed.name, period.name, document, who.person)
    await write_audit_line(state, who, "invoice.close", f"{billed.name}/{period.name}", number=row.number)
    return row


async def _next_to_close(state: AppState, billed: BilledCluster) -> Period:
    """Returns the month to be closed next. Raises NotFound if there never was a machine."""
    where = time_zone(billed.costs.timezone)
    rows = await state.store.invoices.of_cluster(billed.name)
    if rows:
        return month_after(rows[-1].period, billed)
    lives = await state.store.machine_lifetimes.between(billed.name, 0, billed.now + 1)
    if not lives:
        raise NotFound(f"{billed.name} had no machine yet", hint="there is nothing to bill")
    return month_of(min(life.began for life in lives), where)
