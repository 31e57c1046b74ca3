"""Capacity: how full the GPUs were and how long jobs waited."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import MonthText
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.capacity import CapacityOut
from headway.services.billing.ledger.ledger_refresh import load_report_scope
from headway.services.billing.reports.capacity import load_capacity

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/capacity")
async def get_capacity(name: str, state: State, who: Anyone, period: MonthText = "") -> CapacityOut:
    """Returns utilisation and fragmentation by hour and GPU type, waiting times by job size, and what is free now, for
    all teams together."""
    return await load_capacity(state, await load_report_scope(state, name, who, period))
