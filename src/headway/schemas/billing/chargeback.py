"""Chargeback: what each team pays of a month's invoice."""

from __future__ import annotations

from decimal import Decimal

from headway.schemas.base import ResponseModel
from headway.schemas.billing.usd import Usd


class TeamCostOut(ResponseModel):
    """A team's costs by column. The columns add up to `total_usd`."""

    team: str
    productive_usd: Usd
    lost_usd: Usd
    allocated_idle_usd: Usd
    idle_usd: Usd
    spare_usd: Usd
    broken_usd: Usd
    fixed_usd: Usd = Decimal(0)
    total_usd: Usd


class UnassignedOut(ResponseModel):
    """Costs that no team pays. `what` is the cost (idle, spare, broken or fixed) that is charged to a cost centre or that
    no rule could share among teams, or a correction of an earlier month."""

    what: str
    centre: str
    usd: Usd


class ChargebackOut(ResponseModel):
    """Chargeback of a month. `teams` and `unassigned` together add up to the invoice's net sum to the cent. A person
    who may see only some teams gets only those, and `invoice_total_usd` is null."""

    cluster: str
    period: str
    start: int
    end: int
    state: str
    as_of: int
    rules: dict[str, str]
    invoice_total_usd: Usd | None
    teams: list[TeamCostOut]
    unassigned: list[UnassignedOut]
