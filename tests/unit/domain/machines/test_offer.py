"""What a number of GPUs costs by an offer."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from headway.domain.machines.offer import Offer, quote


def _offer(gpus: int, price: str) -> Offer:
    return Offer("aws", "p5.48xlarge", "h100", gpus, Decimal(price), "https://example.org/prices", date(2025, 6, 5))


@pytest.mark.parametrize(
    ("wanted", "machines", "total"), [(1, 1, "55.04"), (8, 1, "55.04"), (9, 2, "110.08"), (16, 2, "110.08")]
)
def test_gpus_are_bought_in_whole_machines(wanted: int, machines: int, total: str) -> None:
    found = quote(_offer(8, "55.04"), wanted)
    assert (found.machines, found.gpus, found.price_usd_per_hour) == (machines, machines * 8, Decimal(total))


def test_the_price_of_a_gpu_is_its_part_of_the_machine() -> None:
    assert _offer(8, "55.04").price_usd_per_gpu_hour == Decimal("6.88")


@pytest.mark.parametrize(("of_machine", "wanted"), [(0, 1), (8, 0), (8, -1)])
def test_what_cannot_be_bought_has_no_quote(of_machine: int, wanted: int) -> None:
    with pytest.raises(ValueError, match="GPUs can't be had"):
        quote(_offer(of_machine, "1"), wanted)
