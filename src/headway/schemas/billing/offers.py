"""Models of the prices of clouds."""

from __future__ import annotations

from datetime import date

from headway.domain.machines.offer import PurchaseOption
from headway.schemas.base import ResponseModel
from headway.schemas.billing.usd import Usd


class OfferOut(ResponseModel):
    """What the GPUs cost by one offer: `machines` machines with `total_gpus` GPUs together cost `usd_per_hour`. Prices are
    without tax, disks, addresses and traffic. "" and 0 mean that the source does not say. `network` connects machines,
    `gpu_link` the GPUs of one machine."""

    cloud: str
    instance_type: str
    region: str
    zone: str
    purchase: PurchaseOption
    gpu_type: str
    gpu_product: str
    gpus: int
    gpu_memory_mib: int
    cpus: int
    memory_mib: int
    gpu_link: str
    network: str
    network_gbit_s: int
    machines: int
    total_gpus: int
    usd_per_machine_hour: Usd
    usd_per_gpu_hour: Usd
    usd_per_hour: Usd
    as_of: date
    age: str
    source: str
    note: str


class OffersOut(ResponseModel):
    """Offers, the lowest price first. `gpus`: the number that was asked for, 0 for the price of one machine. `left_off`:
    how many more offers there are. `oldest` and `newest`: the days of the prices that are listed. `refreshed_at`: unix
    seconds when prices were last fetched; 0: all are those of this version of Headway."""

    gpus: int
    offers: list[OfferOut]
    left_off: int
    oldest: date | None = None
    newest: date | None = None
    refreshed_at: int = 0


class CloudRefreshOut(ResponseModel):
    """The prices of one cloud that were fetched, or why they were not."""

    cloud: str
    offers: int = 0
    as_of: date | None = None
    error: str = ""


class RefreshedOffersOut(ResponseModel):
    """What a refresh of the prices fetched, by cloud."""

    source: str
    clouds: list[CloudRefreshOut]
