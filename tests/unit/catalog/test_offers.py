"""The shipped prices of clouds: every row has a source and a date, and the figures fit together."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from headway.catalog.offers import OffersFile, shipped_offers
from headway.domain.machines.offer import PurchaseOption


def test_each_row_says_where_and_when_its_price_was_read() -> None:
    for offer in shipped_offers():
        assert offer.source.startswith("https://"), offer
        assert date(2025, 1, 1) <= offer.as_of <= datetime.now(UTC).date(), offer


def test_no_offer_is_listed_twice() -> None:
    keys = [(offer.cloud, offer.instance_type, offer.region, offer.purchase) for offer in shipped_offers()]
    assert len(keys) == len(set(keys))


def test_the_figures_of_a_row_are_possible() -> None:
    for offer in shipped_offers():
        assert Decimal("0.1") < offer.price_usd_per_gpu_hour < 20, offer
        assert not offer.gpu_memory_mib or 15_000 < offer.gpu_memory_mib < 300_000, offer
        assert not offer.memory_mib or offer.memory_mib / offer.gpus >= 16 * 1024, offer
        assert not (offer.gpu_link and offer.gpus == 1), offer


def test_a_spot_machine_costs_less_than_the_same_on_demand() -> None:
    by_kind = {(o.cloud, o.instance_type, o.region, o.purchase): o for o in shipped_offers()}
    compared = 0
    for (*place, purchase), spot in by_kind.items():
        if purchase is PurchaseOption.SPOT and (other := by_kind.get((*place, PurchaseOption.ON_DEMAND))):
            assert spot.price_usd_per_node_hour < other.price_usd_per_node_hour, spot
            compared += 1
    assert compared >= 5


def test_a_price_of_one_gpu_is_multiplied_by_the_gpus() -> None:
    found = next(offer for offer in shipped_offers() if offer.instance_type == "8x H100 SXM")
    assert (found.price_usd_per_node_hour, found.price_usd_per_gpu_hour) == (Decimal("31.92"), Decimal("3.99"))


@pytest.mark.parametrize("prices", [{}, {"usd_per_hour": 1, "usd_per_gpu_hour": 1}])
def test_a_row_has_exactly_one_price(prices: dict[str, int]) -> None:
    row = {"type": "x", "gpu": "h100", "gpus": 8, **prices}
    source = {"source": "https://example.org/", "as_of": "2026-01-01", "cloud": "x", "offers": [row]}
    with pytest.raises(ValidationError, match="give usd_per_hour or usd_per_gpu_hour"):
        OffersFile.model_validate({"sources": [source]})
