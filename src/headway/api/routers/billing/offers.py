"""Prices of GPU machines of clouds."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, AnyoneAllClusters, State
from headway.api.http.billing_parameters import CSV_OR_JSON, ReportFormat, csv_response
from headway.api.http.offer_parameters import OfferQuery, offer_query
from headway.schemas.base import API_PREFIX
from headway.schemas.billing.offers import OffersOut, RefreshedOffersOut
from headway.services.billing.offers import compare_offers, refresh_offers

router = APIRouter(prefix=f"{API_PREFIX}/offers", tags=["costs"])
MOST_OFFERS = 1000


@router.get("", response_model=OffersOut, responses=CSV_OR_JSON)
async def list_offers(
    state: State,
    who: AnyoneAllClusters,
    query: Annotated[OfferQuery, Depends(offer_query)],
    cluster: Annotated[str, Query(max_length=64, description="compare the groups of this cluster too")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_OFFERS)] = 100,
    format: ReportFormat = "json",  # noqa: A002
) -> OffersOut | Response:
    """Returns offers of clouds, the lowest price first: of `count` GPUs in whole machines, or without `count` of one GPU. Each
    price has its source and its day."""
    found = await compare_offers(state, who, query.only, query.count, limit, cluster=cluster)
    return csv_response(found, "offers") if format == "csv" else found


@router.post("/refresh", name="offers.refresh")
async def refresh(state: State, who: Admin) -> RefreshedOffersOut:
    """Fetches newer prices from the public catalogues of gpuhunt, and keeps them. Clouds that can't be fetched keep the
    prices they have."""
    return await refresh_offers(state, who)
