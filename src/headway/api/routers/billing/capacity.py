"""Capacity: how full the GPUs were and will be, and how long jobs waited."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.billing_parameters import MonthText
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.capacity import CapacityOut
from headway.schemas.billing.forecast import ForecastOut
from headway.schemas.billing.purchase import PurchaseIn, PurchaseOut
from headway.services.billing.ledger.ledger_refresh import load_report_scope
from headway.services.billing.purchase import load_purchase
from headway.services.billing.reports.capacity import load_capacity
from headway.services.billing.reports.forecast import load_forecast

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["costs"])


@router.get("/capacity")
async def get_capacity(name: str, state: State, who: Anyone, period: MonthText = "") -> CapacityOut:
    """Returns utilisation and fragmentation by hour and GPU type, waiting times by job size, and what is free now, for
    all teams together."""
    return await load_capacity(state, await load_report_scope(state, name, who, period))


@router.get("/forecast")
async def get_forecast(name: str, state: State, who: Anyone) -> ForecastOut:
    """Returns the expected GPU-hours of the next thirteen weeks with the error of such forecasts in the past, when the GPUs
    will all be in use, and the waits to expect, for all teams together; by team only for those that one may see."""
    return await load_forecast(state, await load_report_scope(state, name, who, ""))


@router.get("/purchase")
async def get_purchase(name: str, state: State, who: Anyone, wanted: Annotated[PurchaseIn, Query()]) -> PurchaseOut:
    """Returns the hours a month from which on reserved or own GPUs are cheaper than rented ones, and the mix that would have
    served the usage of the last days at the lowest price, for all teams together."""
    return await load_purchase(state, name, who, wanted)
