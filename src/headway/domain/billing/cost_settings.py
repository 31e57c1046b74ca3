"""Settings by which the costs of a cluster are computed, with their defaults: time zone, energy, fixed costs, and who pays
for capacity that was allocated to no job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

# Who pays for capacity that was allocated to no job: teams in proportion to their use, teams by their shares, or a cost centre.
BY_USE = "use"
BY_SHARE = "share"
COST_CENTRE = "centre:"  # followed by its name


@dataclass(frozen=True, slots=True)
class InvoiceSettings:
    """What a printed invoice says besides its lines. `issuer`, `recipient` and `note` are the lines of texts.
    `tax_percent` is added to the sum; `due_days` are the days from the invoice's date until it is due."""

    issuer: tuple[str, ...] = ()
    recipient: tuple[str, ...] = ()
    tax_percent: Decimal = Decimal(0)
    due_days: int = 30
    note: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CostSettings:
    """How the costs of a cluster are computed. `idle`, `spare`, `broken`: who pays for capacity that was allocated to no
    job, and `fixed` for costs that do not depend on nodes: BY_USE, BY_SHARE or COST_CENTRE with a name.
    `fixed_usd_per_hour`: these costs by name. The defaults hold for cluster files and for reports on a cluster whose file
    is not known."""

    timezone: str = "UTC"
    idle: str = BY_USE
    spare: str = BY_SHARE
    broken: str = BY_SHARE
    pue: float = 1.3
    usd_per_kwh: Decimal | None = None
    fixed: str = BY_SHARE
    fixed_usd_per_hour: Mapping[str, Decimal] = field(default_factory=dict)
    invoice: InvoiceSettings = InvoiceSettings()


DEFAULT_COST_SETTINGS = CostSettings()
