"""Energy that GPUs and nodes used."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import MonthText
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.energy import EnergyOut
from headway.services.billing.ledger.ledger_refresh import load_report_scope
from headway.services.billing.reports.energy import load_energy

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/energy")
async def get_energy(name: str, state: State, who: Anyone, period: MonthText = "") -> EnergyOut:
    """Returns the energy of GPUs and nodes in a month: measured, otherwise estimated by type; multiplied by the site's
    PUE."""
    return await load_energy(state, await load_report_scope(state, name, who, period))
