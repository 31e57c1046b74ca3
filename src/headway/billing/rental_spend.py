"""What instances of clouds have cost, from the times in which they ran. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from headway.domain.machines.rented import Rental

_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class RentalSpend:
    """What rentals have cost. `unpriced_s`: the part of `seconds` whose price is not known, which `usd` lacks."""

    usd: Decimal
    seconds: int
    unpriced_s: int


def rental_spend(rentals: Iterable[Rental], start: int, end: int) -> RentalSpend:
    """Returns the cost of the rentals from `start` until `end`, unix seconds. Clouds count seconds from the launch to the
    end; a least time of some clouds, such as a minute at EC2, is not counted."""
    usd, seconds, unpriced_s = Decimal(0), 0, 0
    for one in rentals:
        ran_s = max(0, min(end, end if one.ended_at is None else one.ended_at) - max(start, one.launched_at))
        seconds += ran_s
        if one.usd_per_hour is None:
            unpriced_s += ran_s
        else:
            usd += one.usd_per_hour * ran_s / _HOUR_S
    return RentalSpend(usd, seconds, unpriced_s)
