"""costs: what machines cost, and who pays."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.domain.billing.cost_settings import DEFAULT_COST_SETTINGS
from headway.validation import syntax_rules
from headway.validation.field_types import (
    SHARED_BY,
    FileSection,
    Name,
    SharedBy,
    checked_by,
)

FixedPrice = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]


InvoiceText = Annotated[str, Field(max_length=1000)]


class InvoicePart(FileSection):
    """What a printed invoice says besides its lines."""

    issuer: InvoiceText = Field(
        "", description="Name, address and tax number of the party that sends the invoice, in several lines."
    )
    recipient: InvoiceText = Field("", description="Name and address of the party that pays, in several lines.")
    tax_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(
        0, description="Tax that is added to the sum, in percent."
    )
    due_days: Annotated[int, Field(ge=0, le=365)] = Field(
        DEFAULT_COST_SETTINGS.invoice.due_days, description="Days from the date of the invoice until it is due."
    )
    note: InvoiceText = Field("", description="Text below the sum, such as the bank account.")


class CostPart(FileSection):
    """Cost limit and division of costs."""

    usd_per_hour: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="Limit for all machines together; nodes above it are not created."
    )
    timezone: Annotated[str, checked_by(syntax_rules.zone_fault)] = Field(
        DEFAULT_COST_SETTINGS.timezone,
        description="Time zone in which the months of invoices begin.",
        examples=["Europe/Berlin"],
    )
    idle: SharedBy = Field(
        DEFAULT_COST_SETTINGS.idle, description=f"Division of the cost of idle capacity: {SHARED_BY}"
    )
    spare: SharedBy = Field(DEFAULT_COST_SETTINGS.spare, description=f"Division of the cost of spares: {SHARED_BY}")
    broken: SharedBy = Field(
        DEFAULT_COST_SETTINGS.broken, description=f"Division of the cost of nodes that are down or drained: {SHARED_BY}"
    )
    fixed_usd_per_hour: Annotated[dict[Name, FixedPrice], Field(max_length=50)] = Field(
        {},
        description="Costs that do not depend on nodes, by name, USD per hour: lines of the invoice while the cluster exists.",
        examples=[{"head": 1.1, "disks": 0.42}],
    )
    fixed: SharedBy = Field(
        DEFAULT_COST_SETTINGS.fixed, description=f"Division of the costs in fixed_usd_per_hour: {SHARED_BY}"
    )
    invoice: InvoicePart = Field(
        default_factory=InvoicePart,
        description="Parties, tax and due date of the invoice.",
        examples=[{"issuer": "Example Ltd, 1 Main Street, London", "recipient": "Acme Inc", "tax_percent": 20}],
    )
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = Field(
        DEFAULT_COST_SETTINGS.pue,
        description="Power usage effectiveness: energy of the site divided by energy of the machines.",
    )
    usd_per_kwh: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="USD per kilowatt-hour (default: energy has no price)."
    )
