"""What rentals have cost in a time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.billing.rental_spend import rental_spend
from headway.domain.machines.offer import PurchaseOption
from headway.domain.machines.rented import Rental

ONE = Rental("aws", "i-1", 1000, 4600, "lab-1-1", "big", "a", PurchaseOption.ON_DEMAND, Decimal("3.60"))


def test_each_second_between_launch_and_end_counts() -> None:
    assert rental_spend([ONE], 0, 10_000).usd == Decimal("3.60")
    spend = rental_spend([replace(ONE, ended_at=1001), replace(ONE, instance="i-2")], 0, 10_000)
    assert (spend.usd, spend.seconds, spend.unpriced_s) == (Decimal("3.601"), 3601, 0)


def test_only_the_time_asked_for_counts() -> None:
    assert rental_spend([ONE], 2000, 3000).usd == Decimal(1)
    assert rental_spend([replace(ONE, ended_at=None)], 4600, 5600).usd == Decimal(1)
    assert rental_spend([ONE], 5000, 6000).seconds == 0
    assert rental_spend([replace(ONE, launched_at=7000, ended_at=None)], 5000, 6000).seconds == 0


def test_seconds_without_a_price_are_counted_apart() -> None:
    spend = rental_spend([ONE, replace(ONE, usd_per_hour=None)], 0, 10_000)
    assert (spend.usd, spend.seconds, spend.unpriced_s) == (Decimal("3.60"), 7200, 3600)
