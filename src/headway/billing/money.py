"""Money without a lost cent: exact while it is reckoned, whole cents once it is written."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

CENT = Decimal("0.01")


def cents(amount: Fraction) -> int:
    """To the nearest cent, halves to the even one."""
    return round(amount * 100)


def usd(whole_cents: int) -> Decimal:
    """12345 -> 123.45"""
    return (Decimal(whole_cents) / 100).quantize(CENT, ROUND_HALF_EVEN)


def apportion(total: int, weights: Sequence[Fraction]) -> list[int]:
    """`total` cents shared out by weights (none negative), by largest remainder: the sum of the parts is `total`, each part
    lies within a cent of its exact one, and of equal remainders the earlier part gets the cent. All weights zero: the
    first part takes everything."""
    if not weights:
        if total:
            raise ValueError("nobody to share it with")
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
