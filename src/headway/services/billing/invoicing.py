"""The store's facts through the ledger's rules: invoices, chargeback, goodput, budgets. Reads only, but for closing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import structlog

from headway.billing import chargeback, intervals, invoice
from headway.billing.chargeback import Chargeback
from headway.billing.invoice import Invoice
from headway.billing.periods import Period, month, month_of, zone
from headway.errors import Conflict, NotFound, Refused
from headway.services.billing.pricing import SegmentTotals, cut_by_prices
from headway.services.billing.report_scope import BilledCluster
from headway.services.context import AppState
from headway.store import InvoiceRow

log = structlog.get_logger("headway.ledger")


@dataclass(frozen=True)
class Bill:
    """`row` is there once it is closed; zone and rules are those that it was closed by."""

    chargeback: Chargeback
    closed_row: InvoiceRow | None

    @property
    def period(self) -> Period:
        return self.chargeback.invoice.period

    def timezone(self, billed: BilledCluster) -> str:
        return (
            str(self.closed_row.document.get("timezone", billed.costs.timezone))
            if self.closed_row
            else billed.costs.timezone
        )

    def rules(self, billed: BilledCluster) -> dict[str, str]:
        return (
            dict(self.closed_row.document.get("rules", {})) or asdict(billed.rules)
            if self.closed_row
            else asdict(billed.rules)
        )


async def load_bill(state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None) -> Bill:
    """As it was closed, else as far as it has come. `sums`: of all teams."""
    closed = {row.period: row for row in await state.store.invoices.of_cluster(billed.name)}
    row = closed.get(period.name)
    if row is not None:
        kept = invoice.unpacked(row.document["invoice"])
        return Bill(chargeback.unpacked(kept, row.document["chargeback"]), row)
    return Bill(await _reckoned(state, billed, await _joined(state, billed, period), sums), None)


async def close_month(state: AppState, billed: BilledCluster, period: Period, person: str) -> InvoiceRow:
    """Raises Refused while the period lasts, Conflict when it is closed, or an earlier month with costs is not."""
    if period.end > billed.now:
        raise Refused(f"{period.name} is not over", hint="an invoice is closed once its month is over")
    mark = await state.store.ledger_progress.get(billed.name)
    if billed.cluster is not None and mark.error:
        raise Conflict(
            f"accounting of {billed.name} has not been read: {mark.error}", hint="close it once that works again"
        )
    due = await _due(state, billed)
    if period.start > due.start:
        raise Conflict(f"{due.name} is not closed yet", hint="months are closed in their order")
    if period.start < due.start and period.name not in {
        row.period for row in await state.store.invoices.of_cluster(billed.name)
    }:
        raise NotFound(f"{billed.name} had no machine in {period.name}", hint=f"its first month is {due.name}")
    found = await _reckoned(state, billed, await _joined(state, billed, period))
    document = {
        "invoice": invoice.packed(found.invoice),
        "chargeback": chargeback.packed(found),
        "timezone": billed.costs.timezone,
        "rules": asdict(billed.rules),
    }
    return await state.store.invoices.close(billed.name, period.name, document, person)


async def _joined(state: AppState, billed: BilledCluster, period: Period) -> Period:
    """The month after the last closed one begins where that ended, whatever became of the time zone: no second is billed
    twice, and none is left out."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != _after(rows[-1].period, billed).name:
        return period
    return replace(period, start=invoice.unpacked(rows[-1].document["invoice"]).period.end)


async def _due(state: AppState, billed: BilledCluster) -> Period:
    """The month that is to be closed next. Raises NotFound where there is nothing to bill."""
    where = zone(billed.costs.timezone)
    rows = await state.store.invoices.of_cluster(billed.name)
    if rows:
        return _after(rows[-1].period, billed)
    lives = await state.store.machine_lives.between(billed.name, 0, billed.now + 1)
    if not lives:
        raise NotFound(f"{billed.name} had no machine yet", hint="there is nothing to bill")
    return month_of(min(life.began for life in lives), where)


async def _reckoned(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None
) -> Chargeback:
    """From the facts as they are now."""
    own, costs = await _of_period(state, billed, period, sums or SegmentTotals(state, billed))
    lines = (*own.lines, *await _corrections(state, billed, period))
    whole = Invoice(billed.name, period, lines)
    return chargeback.share_out(whole, costs, billed.rules, billed.shares)


async def _of_period(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals
) -> tuple[Invoice, chargeback.Costs]:
    store, name, now = state.store, billed.name, billed.now
    lives = await store.machine_lives.between(name, period.start, period.end)
    states = await store.node_spans.between(name, period.start, period.end)
    reserved = {row.group for row in await store.prices.of_cluster(name) if row.reserved}
    cut = await cut_by_prices(state, billed, period, {life.group for life in lives} | reserved)
    nodes = invoice.metered(lives, states, cut, now)
    costs, not_there = chargeback.Costs(), []
    for segment in cut:
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
    return invoice.reckon(name, period, nodes, not_there), costs


async def _corrections(state: AppState, billed: BilledCluster, period: Period) -> list[invoice.Line]:
    """What closed months would be billed beside what they were: on the first invoice that is open."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != _after(rows[-1].period, billed).name:
        return []
    closed = [invoice.unpacked(row.document["invoice"]) for row in rows]
    corrected = [line for one in closed for line in one.lines if line.what == "correction"]
    found = []
    for one in closed:
        now, _ = await _of_period(state, billed, one.period, SegmentTotals(state, billed))
        found += invoice.corrections(one, [line for line in corrected if line.of == one.period.name], now)
    return found


def _after(name: str, billed: BilledCluster) -> Period:
    where = zone(billed.costs.timezone)
    return month_of(month(name, where).end, where)


# --- budgets
