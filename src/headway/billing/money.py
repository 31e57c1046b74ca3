"""Amounts of money: exact fractions during computation, whole cents once they are written."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

CENT = Decimal("0.01")


def cents(amount: Fraction) -> int:
    """Returns whole cents: the nearest, and the even one if two are equally near."""
    return round(amount * 100)


def usd(whole_cents: int) -> Decimal:
    """Returns USD: 12345 -> 123.45."""
    return (Decimal(whole_cents) / 100).quantize(CENT, ROUND_HALF_EVEN)


def apportion(total: int, weights: Sequence[Fraction]) -> list[int]:
    """Divides `total` cents by weights (none may be negative), with the largest remainder method.

    The parts add up to `total`, and each is within one cent of its exact value. If remainders are equal, the earlier
    part gets the cent. If all weights are zero, the first part gets everything. Raises ValueError for cents without
    any weights."""
    if not weights:
        if total:
            raise ValueError("no team to divide the amount among")
        return []
    whole = sum(weights, Fraction(0))
    if whole == 0:
        return [total, *[0] * (len(weights) - 1)]
    sign, size = (-1, -total) if total < 0 else (1, total)
    exact = [size * weight / whole for weight in weights]
    parts = [part.numerator // part.denominator for part in exact]
    order = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in order[: size - sum(parts)]:
        parts[i] += 1
    return [sign * part for part in parts]
