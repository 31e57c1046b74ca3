"""Invoices and chargeback in the form of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

from headway.billing import chargeback, cluster_invoice
from headway.billing.chargeback import Chargeback
from headway.billing.cluster_invoice import InvoiceLine
from headway.billing.money import cents, usd
from headway.billing.periods import Period, days_after, time_zone
from headway.schemas.billing.chargeback import ChargebackOut, TeamCostOut, UnassignedOut
from headway.schemas.billing.invoices import InvoiceLineOut, InvoiceOut, InvoiceTaxOut
from headway.services.app_state import AppState
from headway.services.billing.monthly_bill import Bill, load_bill, unpacked_settings
from headway.services.billing.reports.report_scope import HOUR_S, BilledCluster, ReportScope
from headway.store import InvoiceRow


async def load_invoice(state: AppState, billed: BilledCluster, month: Period) -> InvoiceOut:
    """Returns the month's invoice: the closed one, otherwise the costs up to now."""
    rates = _tax_rates(await state.store.invoices.of_cluster(billed.name))
    return _invoice_out(billed, await load_bill(state, billed, month), rates)


async def load_closed_invoices(state: AppState, billed: BilledCluster) -> list[InvoiceOut]:
    """Returns the closed invoices, the latest first."""
    rows = await state.store.invoices.of_cluster(billed.name)
    rates = _tax_rates(rows)
    return [
        _invoice_out(billed, Bill(Chargeback(cluster_invoice.unpacked(row.document["invoice"]), (), ()), row), rates)
        for row in reversed(rows)
    ]


async def load_chargeback(state: AppState, scope: ReportScope) -> ChargebackOut:
    """Returns which team pays which part of the month's invoice, for the teams that the person may see."""
    return _chargeback_out(scope, await load_bill(state, scope.billed, scope.month))


def _tax_rates(rows: Iterable[InvoiceRow]) -> dict[str, Decimal]:
    """Returns the tax in percent of each closed month."""
    return {row.period: unpacked_settings(row.document).tax_percent for row in rows}


def _taxes(lines: Iterable[InvoiceLine], rate: Decimal, rates: Mapping[str, Decimal]) -> list[tuple[Decimal, int, int]]:
    """Returns (rate above 0, net cents, tax cents) of lines. `rate` is that of their month; a correction has the rate of the
    month that it corrects."""
    net = {rate: 0}
    for line in lines:
        percent = rates.get(line.of, rate)
        net[percent] = net.get(percent, 0) + line.amount_cents
    return [
        (percent, amount, cents(Fraction(amount, 100) * Fraction(percent) / 100))
        for percent, amount in net.items()
        if percent
    ]


def _invoice_out(billed: BilledCluster, bill: Bill, rates: Mapping[str, Decimal]) -> InvoiceOut:
    """Returns the invoice; `rates` are the taxes of closed months in percent."""
    row, period, settings = bill.closed_row, bill.period, bill.settings(billed)
    total_cents = bill.chargeback.invoice.total_cents
    taxes = _taxes(bill.chargeback.invoice.lines, settings.tax_percent, rates)
    tax_cents = sum(tax for _, _, tax in taxes)
    return InvoiceOut(
        cluster=billed.name,
        period=period.name,
        start=period.start,
        end=period.end,
        timezone=bill.timezone(billed),
        state="closed" if row else "open",
        as_of=min(billed.now, period.end),
        number=row.number if row else None,
        closed_at=row.closed_at if row else None,
        closed_by=row.closed_by if row else "",
        lines=[
            InvoiceLineOut(
                what=line.what,
                group=line.group,
                billing=line.billing,
                usd_per_hour=line.usd_per_hour,
                hours=round(line.seconds / HOUR_S, 4),
                seconds=line.seconds,
                amount_usd=usd(line.amount_cents),
                of=line.of,
            )
            for line in bill.chargeback.invoice.lines
        ],
        total_usd=usd(total_cents),
        reference=f"{billed.name}-{period.name}-{row.number}" if row else "",
        issuer="\n".join(settings.issuer),
        recipient="\n".join(settings.recipient),
        note="\n".join(settings.note),
        tax_percent=float(settings.tax_percent),
        taxes=[
            InvoiceTaxOut(tax_percent=float(percent), net_usd=usd(net), tax_usd=usd(tax)) for percent, net, tax in taxes
        ],
        tax_usd=usd(tax_cents),
        due_usd=usd(total_cents + tax_cents),
        due_at=days_after(row.closed_at, settings.due_days, time_zone(bill.timezone(billed))) if row else None,
    )


def _chargeback_out(scope: ReportScope, bill: Bill) -> ChargebackOut:
    billed, period, seen, found = scope.billed, bill.period, scope.visible_teams, bill.chargeback
    return ChargebackOut(
        cluster=billed.name,
        period=period.name,
        start=period.start,
        end=period.end,
        state="closed" if bill.closed_row else "open",
        as_of=min(billed.now, period.end),
        rules=bill.rules(billed),
        invoice_total_usd=usd(found.invoice.total_cents) if seen is None else None,
        teams=[
            TeamCostOut(
                team=team.team,
                total_usd=usd(team.total_cents),
                **{f"{column}_usd": usd(team.cents[column]) for column in chargeback.COLUMNS},
            )
            for team in found.teams
            if seen is None or team.team in seen
        ],
        unassigned=[UnassignedOut(what=cost.what, centre=cost.centre, usd=usd(cost.cents)) for cost in found.unassigned]
        if seen is None
        else [],
    )
