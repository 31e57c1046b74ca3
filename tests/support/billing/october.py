"""Machines, prices and invoices of October 2026."""

from __future__ import annotations

from decimal import Decimal

from headway.billing import cluster_invoice, periods
from headway.billing.prices import price_segments
from headway.domain.billing.ledger import MachineLifetime, NodePrice, NodeSpan

UTC = periods.time_zone("UTC")
OCTOBER = periods.month_period("2026-10", UTC)
H = 3600


def priced(*prices: tuple[int, str], group: str = "main") -> list[NodePrice]:
    return [NodePrice(group, since, Decimal(usd_per_hour)) for since, usd_per_hour in prices]


def billed(
    lives: list[MachineLifetime], prices: list[NodePrice], states: list[NodeSpan] | None = None, now: int = 0
) -> cluster_invoice.Invoice:
    cut = price_segments.segments(prices, {life.group for life in lives}, OCTOBER)
    return cluster_invoice.invoice_lines(
        "lab", OCTOBER, cluster_invoice.metered(lives, states or [], cut, now or OCTOBER.end)
    )


def life(machine: str, began: int, ended: int, group: str = "main") -> MachineLifetime:
    return MachineLifetime(machine, group, OCTOBER.start + began, ended and OCTOBER.start + ended, 0)
