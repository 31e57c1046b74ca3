"""Query parameters that select offers of clouds, for the endpoint and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from headway.billing.prices.offer_comparison import OfferFilter
from headway.domain.machines.offer import PurchaseOption

MOST_GPUS = 100_000
Name = Annotated[str, Query(max_length=64)]


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Which offers are asked for, and for how many GPUs (0: not said)."""

    only: OfferFilter
    count: int


def offer_query(
    gpu: Annotated[str, Query(max_length=64, description="GPU type, as h100")] = "",
    count: Annotated[int, Query(ge=0, le=MOST_GPUS, description="number of GPUs; 0: the price of one machine")] = 0,
    cloud: Name = "",
    region: Name = "",
    purchase: Annotated[PurchaseOption | None, Query(description="on-demand, spot or reserved")] = None,
    gpus_per_node: Annotated[int, Query(ge=0, le=1024, description="smallest number of GPUs of one machine")] = 0,
) -> OfferQuery:
    """Returns the query of a request."""
    return OfferQuery(OfferFilter(gpu.strip(), cloud.strip(), region.strip(), purchase, gpus_per_node), count)
