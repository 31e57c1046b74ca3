"""Makes invoices and chargeback from the stored facts and the rules of headway.billing, and closes invoices."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import structlog

from headway.billing import chargeback, intervals, invoice
from headway.billing.chargeback import Chargeback
from headway.billing.invoice import Invoice
from headway.billing.periods import Period, month, month_of, zone
from headway.errors import Conflict, NotFound, Refused
from headway.services.app_state import AppState
from headway.services.billing.pricing import SegmentTotals, cut_by_prices
from headway.services.billing.report_scope import BilledCluster
from headway.store import InvoiceRow

log = structlog.get_logger("headway.billing")


@dataclass(frozen=True)
class Bill:
    """A month's invoice and which team pays which part. `closed_row` is the stored invoice once it is closed, None
    before."""

    chargeback: Chargeback
    closed_row: InvoiceRow | None

    @property
    def period(self) -> Period:
        """Returns the billed period."""
        return self.chargeback.invoice.period

    def timezone(self, billed: BilledCluster) -> str:
        """Returns the time zone of the month's limits; for a closed invoice the one at its closing."""
        return (
            str(self.closed_row.document.get("timezone", billed.costs.timezone))
            if self.closed_row
            else billed.costs.timezone
        )

    def rules(self, billed: BilledCluster) -> dict[str, str]:
        """Returns how idle, spare and broken capacity is charged; for a closed invoice the rules at its closing."""
        return (
            dict(self.closed_row.document.get("rules", {})) or asdict(billed.rules)
            if self.closed_row
            else asdict(billed.rules)
        )


async def load_bill(state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None) -> Bill:
    """Returns the period's bill: the closed one, otherwise up to now. `sums` are allocations of all teams, if already
    loaded."""
    closed = {row.period: row for row in await state.store.invoices.of_cluster(billed.name)}
    row = closed.get(period.name)
    if row is not None:
        kept = invoice.unpacked(row.document["invoice"])
        return Bill(chargeback.unpacked(kept, row.document["chargeback"]), row)
    return Bill(await _compute(state, billed, await _joined_to_last_closed(state, billed, period), sums), None)


async def close_month(state: AppState, billed: BilledCluster, period: Period, person: str) -> InvoiceRow:
    """Closes the month and returns the stored invoice.

    Raises Refused before the month is over, NotFound for a month before the first machine, and Conflict if an
    earlier month is not closed, accounting could not be read, or it is closed already."""
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
    found = await _compute(state, billed, await _joined_to_last_closed(state, billed, period))
    document = {
        "invoice": invoice.packed(found.invoice),
        "chargeback": chargeback.packed(found),
        "timezone": billed.costs.timezone,
        "rules": asdict(billed.rules),
    }
    return await state.store.invoices.close(billed.name, period.name, document, person)


async def _joined_to_last_closed(state: AppState, billed: BilledCluster, period: Period) -> Period:
    """Returns the period, started where the last closed month ended. A changed time zone would otherwise bill some
    hours twice or not at all."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != _month_after(rows[-1].period, billed).name:
        return period
    return replace(period, start=invoice.unpacked(rows[-1].document["invoice"]).period.end)


async def _next_to_close(state: AppState, billed: BilledCluster) -> Period:
    """Returns the month to be closed next. Raises NotFound if there never was a machine."""
    where = zone(billed.costs.timezone)
    rows = await state.store.invoices.of_cluster(billed.name)
    if rows:
        return _month_after(rows[-1].period, billed)
    lives = await state.store.machine_lives.between(billed.name, 0, billed.now + 1)
    if not lives:
        raise NotFound(f"{billed.name} had no machine yet", hint="there is nothing to bill")
    return month_of(min(life.began for life in lives), where)


async def _compute(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None
) -> Chargeback:
    """Returns the chargeback computed from the facts as they are now."""
    own, costs = await _own_costs(state, billed, period, sums or SegmentTotals(state, billed))
    lines = (*own.lines, *await _corrections(state, billed, period))
    whole = Invoice(billed.name, period, lines)
    return chargeback.share_out(whole, costs, billed.rules, billed.shares)


async def _own_costs(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals
) -> tuple[Invoice, chargeback.Costs]:
    store, name, now = state.store, billed.name, billed.now
    lives = await store.machine_lives.between(name, period.start, period.end)
    states = await store.node_spans.between(name, period.start, period.end)
    reserved = {row.group for row in await store.prices.of_cluster(name) if row.reserved}
    segments = await cut_by_prices(state, billed, period, {life.group for life in lives} | reserved)
    nodes = invoice.metered(lives, states, segments, now)
    costs, not_there = chargeback.Costs(), []
    for segment in segments:
        here = [one for one in nodes if one.segment is segment]
        unused_s = invoice.unused(segment, here, now)
        not_there.append((segment, unused_s))
        if not here and not unused_s:
            continue
        uses = [cell.use for cell in await sums.load_cells(segment)]
        broken = [(one.machine, *span) for one in here for span in intervals.union(one.broken)]
        held_broken = sum(
            (
                Fraction(one.units * (one.end - one.start), one.per_node)
                for one in await store.capacity.held_on(name, broken, now)
            ),
            Fraction(0),
        )
        costs.add(segment, uses, here, held_broken, unused_s)
    return invoice.invoice_lines(name, period, nodes, not_there), costs


async def _corrections(state: AppState, billed: BilledCluster, period: Period) -> list[invoice.Line]:
    """Returns corrections of closed months (the present amount minus the billed one), for the first open invoice only."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != _month_after(rows[-1].period, billed).name:
        return []
    closed = [invoice.unpacked(row.document["invoice"]) for row in rows]
    corrected = [line for one in closed for line in one.lines if line.what == "correction"]
    found = []
    for one in closed:
        now, _ = await _own_costs(state, billed, one.period, SegmentTotals(state, billed))
        found += invoice.corrections(one, [line for line in corrected if line.of == one.period.name], now)
    return found


def _month_after(name: str, billed: BilledCluster) -> Period:
    where = zone(billed.costs.timezone)
    return month_of(month(name, where).end, where)
