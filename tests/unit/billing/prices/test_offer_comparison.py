"""The order of offers, and the age of their prices."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from headway.billing.prices.offer_comparison import OfferFilter, age_text, compare
from headway.domain.machines.offer import Offer, PurchaseOption

DAY = date(2025, 6, 5)


def _offer(name: str, gpus: int, price: str, gpu: str = "h100", **more: str) -> Offer:
    purchase = PurchaseOption(more.pop("purchase", "on-demand"))
    cloud, region = more.get("cloud", "aws"), more.get("region", "us-east-1")
    return Offer(cloud, name, gpu, gpus, Decimal(price), "https://example.org", DAY, purchase=purchase, region=region)


OFFERS = (
    _offer("eight", 8, "40"),  # 5.00 per GPU
    _offer("six", 6, "27"),  # 4.50 per GPU
    _offer("one", 1, "6", region="eu-west-1"),
    _offer("spot", 8, "16", purchase="spot"),
    _offer("other", 8, "8", gpu="a100", cloud="gcp"),
    _offer("cpus", 0, "1", gpu=""),
)


def _names(only: OfferFilter, gpus: int = 0) -> list[str]:
    return [found.offer.instance_type for found in compare(OFFERS, only, gpus)]


def test_without_a_count_the_cheapest_gpu_is_first_and_machines_without_gpus_are_left_out() -> None:
    assert _names(OfferFilter()) == ["other", "spot", "six", "eight", "one"]


def test_with_a_count_the_price_of_all_machines_decides() -> None:
    only = OfferFilter(gpu_type="h100", purchase=PurchaseOption.ON_DEMAND)
    assert [(q.offer.instance_type, q.machines, q.price_usd_per_hour) for q in compare(OFFERS, only, 8)] == [
        ("eight", 1, Decimal(40)),
        ("one", 8, Decimal(48)),
        ("six", 2, Decimal(54)),  # 12 GPUs are paid for
    ]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (OfferFilter(gpu_type="A100"), ["other"]),
        (OfferFilter(cloud="AWS", gpus_per_node=8), ["spot", "eight"]),
        (OfferFilter(region="eu-west-1"), ["one"]),
        (OfferFilter(purchase=PurchaseOption.SPOT), ["spot"]),
        (OfferFilter(gpu_type="b300"), []),
    ],
)
def test_filters(only: OfferFilter, names: list[str]) -> None:
    assert _names(only) == names


@pytest.mark.parametrize(
    ("today", "text"),
    [
        (DAY, "today"),
        (date(2025, 6, 4), "today"),  # a clock that is behind
        (date(2025, 6, 6), "1 day old"),
        (date(2025, 8, 4), "60 days old"),
        (date(2025, 8, 5), "2 months old"),
        (date(2026, 12, 5), "18 months old"),
    ],
)
def test_the_age_of_a_price(today: date, text: str) -> None:
    assert age_text(DAY, today) == text
