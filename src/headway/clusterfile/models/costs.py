"""costs: what machines cost, and who pays."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.domain.cluster import DEFAULT_COSTS
from headway.validation import syntax_rules
from headway.validation.field_types import (
    SHARED_BY,
    Part,
    SharedBy,
    checked_by,
)


class CostPart(Part):
    """Cost limit and division of costs."""

    usd_per_hour: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="Limit for all machines together; nodes above it are not created."
    )
    timezone: Annotated[str, checked_by(syntax_rules.zone_fault)] = Field(
        DEFAULT_COSTS.timezone,
        description="Time zone in which the months of invoices begin.",
        examples=["Europe/Berlin"],
    )
    idle: SharedBy = Field(DEFAULT_COSTS.idle, description=f"Division of the cost of idle capacity: {SHARED_BY}")
    spare: SharedBy = Field(DEFAULT_COSTS.spare, description=f"Division of the cost of spares: {SHARED_BY}")
    broken: SharedBy = Field(
        DEFAULT_COSTS.broken, description=f"Division of the cost of nodes that are down or drained: {SHARED_BY}"
    )
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = Field(
        DEFAULT_COSTS.pue,
        description="Power usage effectiveness: energy of the site divided by energy of the machines.",
    )
    usd_per_kwh: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="USD per kilowatt-hour (default: energy has no price)."
    )
