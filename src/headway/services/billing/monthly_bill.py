"""A month's bill: its invoice and chargeback, computed from the stored facts by the rules of headway.billing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from headway.billing import chargeback, cluster_invoice, intervals
from headway.billing.chargeback import Chargeback
from headway.billing.cluster_invoice import Invoice
from headway.billing.periods import Period, month_of, month_period, time_zone
from headway.domain.billing.cost_settings import InvoiceSettings
from headway.domain.billing.ledger import fixed_cost_name
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import SegmentTotals, cut_by_prices
from headway.services.billing.reports.report_scope import BilledCluster
from headway.store import InvoiceRow


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

    def settings(self, billed: BilledCluster) -> InvoiceSettings:
        """Returns the parties, tax and due date; for a closed invoice those at its closing."""
        return unpacked_settings(self.closed_row.document) if self.closed_row else billed.costs.invoice

    def rules(self, billed: BilledCluster) -> dict[str, str]:
        """Returns how capacity without jobs and fixed costs are charged; for a closed invoice the rules at its closing."""
        return (
            dict(self.closed_row.document.get("rules", {})) or asdict(billed.rules)
            if self.closed_row
            else asdict(billed.rules)
        )


def packed_settings(settings: InvoiceSettings) -> dict[str, object]:
    """Returns the settings as the JSON value stored with a closed invoice."""
    return {**asdict(settings), "tax_percent": str(settings.tax_percent)}


def unpacked_settings(document: Mapping[str, Any]) -> InvoiceSettings:
    """Returns the settings of a closed invoice's document. One that was closed before they existed has none."""
    kept = document.get("settings")
    if not kept:
        return InvoiceSettings()
    texts = {name: tuple(kept[name]) for name in ("issuer", "recipient", "note")}
    return InvoiceSettings(**texts, tax_percent=Decimal(kept["tax_percent"]), due_days=kept["due_days"])


async def load_bill(state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None) -> Bill:
    """Returns the period's bill: the closed one, otherwise up to now. `sums` are allocations of all teams, if already
    loaded."""
    closed = {row.period: row for row in await state.store.invoices.of_cluster(billed.name)}
    row = closed.get(period.name)
    if row is not None:
        kept = cluster_invoice.unpacked(row.document["invoice"])
        return Bill(chargeback.unpacked(kept, row.document["chargeback"]), row)
    return Bill(await compute_chargeback(state, billed, await join_to_last_closed(state, billed, period), sums), None)


async def join_to_last_closed(state: AppState, billed: BilledCluster, period: Period) -> Period:
    """Returns the period, started where the last closed month ended. A changed time zone would otherwise bill some
    hours twice or not at all."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != month_after(rows[-1].period, billed).name:
        return period
    return replace(period, start=cluster_invoice.unpacked(rows[-1].document["invoice"]).period.end)


async def compute_chargeback(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals | None = None
) -> Chargeback:
    """Returns the chargeback computed from the facts as they are now."""
    own, costs = await _own_costs(state, billed, period, sums or SegmentTotals(state, billed))
    lines = (*own.lines, *await _corrections(state, billed, period))
    whole = Invoice(billed.name, period, lines)
    return chargeback.share_out(whole, costs, billed.rules, billed.shares)


async def _own_costs(
    state: AppState, billed: BilledCluster, period: Period, sums: SegmentTotals
) -> tuple[Invoice, chargeback.TeamCosts]:
    store, name, now = state.store, billed.name, billed.now
    lives = await store.machine_lifetimes.between(name, period.start, period.end)
    states = await store.node_spans.between(name, period.start, period.end)
    reserved = {row.group for row in await store.prices.of_cluster(name) if row.reserved}
    segments = await cut_by_prices(state, billed, period, {life.group for life in lives} | reserved)
    nodes = cluster_invoice.metered(lives, states, segments, now)
    costs, not_there = chargeback.TeamCosts(), []
    for segment in segments:
        here = [one for one in nodes if one.segment is segment]
        unused_s = cluster_invoice.unused(segment, here, now)
        not_there.append((segment, unused_s))
        if fixed_cost_name(segment.group):
            costs.add_fixed(segment, unused_s)
            continue
        if not here and not unused_s:
            continue
        uses = [cell.use for cell in await sums.load_cells(segment)]
        broken = [(one.machine, *span) for one in here for span in intervals.merge_spans(one.broken)]
        allocated_broken = sum(
            (
                Fraction(allocation.units * (allocation.end - allocation.start), allocation.per_node)
                for allocation in await store.capacity.allocations_on(name, broken, now)
            ),
            Fraction(0),
        )
        costs.add(segment, uses, here, allocated_broken, unused_s)
    return cluster_invoice.invoice_lines(name, period, nodes, not_there), costs


async def _corrections(state: AppState, billed: BilledCluster, period: Period) -> list[cluster_invoice.InvoiceLine]:
    """Returns corrections of closed months (the present amount minus the billed one), for the first open invoice only."""
    rows = await state.store.invoices.of_cluster(billed.name)
    if not rows or period.name != month_after(rows[-1].period, billed).name:
        return []
    closed = [cluster_invoice.unpacked(row.document["invoice"]) for row in rows]
    corrected = [line for one in closed for line in one.lines if line.what == "correction"]
    found = []
    for one in closed:
        now, _ = await _own_costs(state, billed, one.period, SegmentTotals(state, billed))
        found += cluster_invoice.corrections(one, [line for line in corrected if line.of == one.period.name], now)
    return found


def month_after(name: str, billed: BilledCluster) -> Period:
    """Returns the month after the month `name` ("2026-09")."""
    where = time_zone(billed.costs.timezone)
    return month_of(month_period(name, where).end, where)
