"""Invoices of a month, and their closing."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.billing.usd import Usd


class InvoiceLineOut(ResponseModel):
    """One line of an invoice. `what` is node, spare, unused (reserved capacity that was not used), fixed (a cost that does not
    depend on nodes; `group` is its name) or correction. `billing` is on demand, reserved, spot or fixed. For a correction,
    `of` is the month that it corrects."""

    what: str
    group: str
    billing: str
    usd_per_hour: Usd
    hours: float
    seconds: int
    amount_usd: Usd
    of: str = ""


class InvoiceTaxOut(ResponseModel):
    """Tax at one rate: `tax_usd` is `tax_percent` of the lines that sum to `net_usd`."""

    tax_percent: float
    net_usd: Usd
    tax_usd: Usd


class InvoiceOut(ResponseModel):
    """A month's invoice. `state` is open (counted up to `as_of`) or closed (never changed again). `number` and
    `reference` are of a closed invoice. `tax_percent` is the rate of its month; a correction has the rate of the month
    that it corrects. `taxes` has each rate above 0, `tax_usd` is their sum, and `due_usd` is that with `total_usd`;
    `due_at` is the first moment of the day, in `timezone`, on which it is to be paid."""

    cluster: str
    period: str
    start: int
    end: int
    timezone: str
    state: str
    as_of: int
    number: int | None = None
    closed_at: float | None = None
    closed_by: str = ""
    lines: list[InvoiceLineOut]
    total_usd: Usd
    reference: str = ""
    issuer: str = ""
    recipient: str = ""
    note: str = ""
    currency: str = "USD"
    tax_percent: float = 0
    taxes: list[InvoiceTaxOut] = Field(default_factory=list)
    tax_usd: Usd = Decimal(0)
    due_usd: Usd = Decimal(0)
    due_at: int | None = None


class CloseIn(RequestModel):
    """The month whose invoice is to be closed, such as 2026-10."""

    period: str = Field(pattern=r"^\d{4}-\d{2}$")
