"""Prices of GPU machines of clouds. All filters are in the address, so that a view can be bookmarked and shared."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query
from starlette.responses import Response

from headway.api.auth.dependencies import AnyoneAllClusters, State
from headway.api.http.offer_parameters import MOST_GPUS, OfferQuery, offer_query
from headway.domain.machines.offer import PurchaseOption
from headway.services.billing.offers import compare_offers, offer_names
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
MOST = 100  # offers of the page
_NETWORKS = {"efa": "EFA", "infiniband": "InfiniBand", "nvlink": "NVLink"}


def _query(
    gpu: Annotated[str, Query(max_length=64)] = "",
    count: Annotated[str, Query(max_length=6)] = "",
    cloud: Annotated[str, Query(max_length=64)] = "",
    purchase: Annotated[str, Query(max_length=12)] = "",
    gpus_per_node: Annotated[str, Query(max_length=4)] = "",
) -> OfferQuery:
    """Returns the query of a form, whose empty fields are sent too. What is no number or no way to buy counts as empty."""
    ways = tuple(PurchaseOption)
    way = PurchaseOption(purchase) if purchase in ways else None
    return offer_query(gpu, _number(count, MOST_GPUS), cloud, "", way, _number(gpus_per_node, 1024))


@router.get("/offers")
async def offers_page(state: State, who: AnyoneAllClusters, query: Annotated[OfferQuery, Depends(_query)]) -> Response:
    """Returns offers of clouds, the lowest price first."""
    only, count = query.only, query.count
    found = await compare_offers(state, who, only, count, MOST)
    words = {
        "gpu": only.gpu_type,
        "count": str(count or ""),
        "cloud": only.cloud,
        "purchase": only.purchase or "",
        "gpus_per_node": str(only.gpus_per_node or ""),
    }
    narrowed = {key: value for key, value in words.items() if value}
    return render(
        "offers.html",
        viewer=who,
        here="offers",
        found=found,
        ages={offer.as_of: offer.age for offer in found.offers},
        ask=words,
        narrowed=bool(narrowed),
        export=urlencode({**narrowed, "format": "csv", "limit": "1000"}),
        names=await offer_names(state),
        purchases=tuple(PurchaseOption),
        networks=_NETWORKS,
    )


def _number(text: str, most: int) -> int:
    return min(int(text), most) if text.isascii() and text.isdigit() else 0
