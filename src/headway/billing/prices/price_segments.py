"""Cuts a period into the times in which a group's nodes have one price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from headway.billing.periods import Period
from headway.domain.billing.ledger import NodePrice, fixed_cost_name

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Segment:
    """A time span in which the nodes of a group have one price."""

    group: str
    start: int
    end: int
    usd_per_hour: Decimal
    spot: bool
    reserved: int = 0  # number of machines that are billed whether or not they exist

    @property
    def billing(self) -> str:
        """Returns the kind of billing: "fixed", "reserved", "spot" or "on demand"."""
        if fixed_cost_name(self.group):
            return "fixed"
        return "reserved" if self.reserved else "spot" if self.spot else "on demand"

    @property
    def usd_per_second(self) -> Fraction:
        """Returns the exact price of one machine-second."""
        return Fraction(self.usd_per_hour) / HOUR_S


def segments(prices: Iterable[NodePrice], groups: Iterable[str], period: Period) -> list[Segment]:
    """Returns the price segments of every group over the whole period, sorted by group and time.

    Time before the first price of a group has that price, but no reserved machines. A group without a price costs
    nothing but still gets a segment."""
    by_group: dict[str, list[NodePrice]] = {group: [] for group in sorted(groups)}
    for price in sorted(prices, key=lambda price: price.since):
        by_group.setdefault(price.group, []).append(price)
    found = []
    for group, known in sorted(by_group.items()):
        known = known or [NodePrice(group, 0, Decimal(0))]
        if known[0].reserved:
            known = [replace(known[0], since=0, reserved=0), *known]
        starts = [period.start, *(int(price.since) for price in known[1:])]
        ends = [*starts[1:], period.end]
        for price, start, end in zip(known, starts, ends, strict=True):
            start, end = max(start, period.start), min(end, period.end)
            if start < end:
                found.append(Segment(group, start, end, price.usd_per_hour, price.spot, price.reserved))
    return found
