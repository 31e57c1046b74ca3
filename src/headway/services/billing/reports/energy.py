"""Energy of a month by team: measured, otherwise estimated by GPU type."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from headway.billing.energy import Energy
from headway.billing.money import cents, usd
from headway.schemas.billing.energy import EnergyOut, EnergyRow
from headway.services.app_state import AppState
from headway.services.billing.reports.report_scope import ReportScope
from headway.services.billing.reports.usage import energy_sum
from headway.store.billing.run_sums import Only
from headway.store.billing.usage import Total


async def load_energy(state: AppState, scope: ReportScope) -> EnergyOut:
    """Returns the month's energy and its cost, by team, for the teams that the person may see."""
    billed, month = scope.billed, scope.month
    totals = await state.store.usage.totals(billed.name, scope.span, ["team", "gpu_type"], Only(scope.visible_teams))
    teams: dict[str, list[Total]] = {}
    for total in totals:
        teams.setdefault(total.by[0], []).append(total)
    price = billed.costs.usd_per_kwh
    return EnergyOut(
        cluster=billed.name,
        period=month.name,
        start=month.start,
        end=month.end,
        pue=billed.costs.pue,
        usd_per_kwh=None if price is None else float(price),
        simulated=billed.simulated,
        total=_energy_row("", totals, billed.costs.pue, price),
        teams=[_energy_row(team, parts, billed.costs.pue, price) for team, parts in sorted(teams.items())],
    )


def _energy_row(team: str, parts: Iterable[Total], pue: float, price: Decimal | None) -> EnergyRow:
    found = energy_sum(parts)
    kwh = found.kwh(pue)
    return EnergyRow(
        team=team,
        kwh=round(kwh, 4),
        measured_kwh=round(Energy(found.measured_j).kwh(pue), 4),
        estimated_kwh=round(Energy(0, found.estimated_j).kwh(pue), 4),
        usd=None if price is None else usd(cents(Fraction(price) * Fraction(kwh))),
    )
