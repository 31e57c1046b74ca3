"""Energy of teams."""

from __future__ import annotations

from headway.schemas.base import ResponseModel
from headway.schemas.billing.usd import Usd


class EnergyRow(ResponseModel):
    """Energy of a team, or of all teams if `team` is empty: the sum of measured and estimated energy."""

    team: str
    kwh: float
    measured_kwh: float
    estimated_kwh: float
    usd: Usd | None = None


class EnergyOut(ResponseModel):
    """Energy in a month, multiplied by the site's `pue`. `usd` is null if the cluster file has no price per kWh."""

    cluster: str
    period: str
    start: int
    end: int
    pue: float
    usd_per_kwh: float | None
    simulated: bool = False
    total: EnergyRow
    teams: list[EnergyRow]
