"""Which GPUs to own, reserve or rent, from the usage of a cluster."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel


class PurchaseIn(RequestModel):
    """Prices and assumptions. Prices of rented GPUs are USD per GPU-hour, 0: the lowest one that is known."""

    gpu: str = Field("", max_length=64, description="GPU type (default: the one with most GPU-hours).")
    days: int = Field(92, ge=1, le=400, description="Days of usage, until now.")
    on_demand: float = Field(0, ge=0, le=1000, allow_inf_nan=False)
    spot: float = Field(0, ge=0, le=1000, allow_inf_nan=False)
    reserved: float = Field(0, ge=0, le=1000, allow_inf_nan=False)
    spot_share: float = Field(0, ge=0, le=1, description="Part of the GPU-hours that may run on spot machines.")
    spot_loss: float = Field(0.1, ge=0, le=10, description="Work that interruptions repeat, by the work done.")
    capex: float = Field(
        0,
        ge=0,
        le=10_000_000,
        allow_inf_nan=False,
        description="USD of an own GPU with its share of server and network.",
    )
    years: float = Field(4, ge=0.5, le=20, description="Years until an own GPU is sold.")
    resale: float = Field(0.2, ge=0, le=1, description="Part of the price that the sale brings.")
    usd_per_kwh: float = Field(0.12, ge=0, le=10)
    pue: float = Field(1.3, ge=1, le=5, description="Power of the site, with cooling, by that of its machines.")
    running: float = Field(0.08, ge=0, le=5, description="Rent, people and repairs of a year, by the price of the GPU.")


class WayToBuyOut(ResponseModel):
    """One way to buy a GPU. `fixed_usd_h`: USD of each hour; `used_usd_h`: USD more of a used hour; `break_even_h`: hours a month
    in use from which on it is cheaper than on-demand, null if it never is; `origin`: where the price is from."""

    name: str
    fixed_usd_h: float
    used_usd_h: float
    break_even_h: float | None = None
    origin: str


class MixPartOut(ResponseModel):
    """One way in the cheapest mix: GPUs at most, the GPU-hours that they serve, USD. A GPU whose hours are partly on spot
    counts in both ways."""

    name: str
    gpus: int
    gpu_hours: float
    usd: float


class SensitivityOut(ResponseModel):
    """The cheapest mix if one thing is 20 % lower or higher: USD, and GPUs that are owned or reserved."""

    name: str
    low_usd: float
    high_usd: float
    low_fixed_gpus: int
    high_fixed_gpus: int


class PurchaseOut(ResponseModel):
    """The mix that would have served the usage at the lowest price. `usage_gpu_hours`: of jobs; `present_gpu_hours`: of all
    machines; `all_on_demand_usd`: price if all of it had been rented by the hour."""

    cluster: str
    gpu: str
    start: int
    hours: int
    usage_gpu_hours: float
    present_gpu_hours: float
    peak_gpus: float
    ways: list[WayToBuyOut]
    mix: list[MixPartOut]
    usd: float
    all_on_demand_usd: float
    sensitivity: list[SensitivityOut]
    assumptions: list[str]
