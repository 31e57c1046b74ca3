"""Which GPUs to own, reserve or rent: break-even between ways to buy, and the mix that serves a usage at the lowest price. Pure.

The mix is that of a load-duration curve: the GPU that is needed in the fewest hours comes last, and each GPU is bought in the way
that is cheapest for the number of hours in which it is needed (screening curves of power plants). Spot serves hours, up to its
share; the others are bought for the hours that it leaves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

HOURS_A_MONTH = 730.0
_HOURS_A_YEAR = 8760.0
_NO_HOURS = 1e-9  # what rounding leaves of the hours of a GPU


@dataclass(frozen=True, slots=True)
class WayToBuy:
    """One way to buy a GPU, in USD: what each hour costs whether it is used or not, and what a used hour costs more."""

    name: str
    fixed_usd_h: float
    used_usd_h: float

    def cost(self, used_h: float, all_h: float) -> float:
        """Returns USD of one GPU that is needed in `used_h` of `all_h` hours."""
        return self.fixed_usd_h * all_h + self.used_usd_h * used_h


@dataclass(frozen=True, slots=True)
class OwnedGpu:
    """A GPU that is bought with its share of server and network. `capex_usd`: its price; `resale_share`: part of it that a sale
    after `years` brings; `watts`: of the GPU at its power limit; `machine_share`: power of the machine by that of its GPUs;
    `pue`: power of the site, with cooling, by that of its machines; `running_share`: rent, people and repairs
    of a year by the price."""

    capex_usd: float
    years: float = 4.0
    resale_share: float = 0.2
    watts: float = 700.0
    machine_share: float = 1.25
    pue: float = 1.3
    usd_per_kwh: float = 0.12
    running_share: float = 0.08

    def way(self) -> WayToBuy:
        """Returns it as a way to buy. Energy counts for used hours."""
        yearly = self.capex_usd * ((1 - self.resale_share) / self.years + self.running_share)
        energy = self.watts / 1000 * self.machine_share * self.pue * self.usd_per_kwh
        return WayToBuy("owned", yearly / _HOURS_A_YEAR, energy)


@dataclass(frozen=True, slots=True)
class MixPart:
    """One way in a mix: how many GPUs at most, the GPU-hours that it serves, and USD. A GPU whose hours are partly on spot counts
    in both ways."""

    name: str
    gpus: int
    gpu_hours: float
    usd: float


@dataclass(frozen=True, slots=True)
class Mix:
    """The cheapest mix. USD of all parts together."""

    parts: tuple[MixPart, ...]

    @property
    def usd(self) -> float:
        """Price of all parts."""
        return sum(part.usd for part in self.parts)


def break_even_hours(fixed: WayToBuy, by_hour: WayToBuy) -> float | None:
    """Returns the hours a month from which on `fixed` is cheaper for one GPU; None if it never is."""
    saved = by_hour.used_usd_h - fixed.used_usd_h
    more = fixed.fixed_usd_h - by_hour.fixed_usd_h
    if more <= 0 <= saved:
        return 0.0
    if saved <= 0:
        return None
    hours = more * HOURS_A_MONTH / saved
    return hours if hours <= HOURS_A_MONTH else None


def hours_by_gpu(usage: Iterable[float]) -> list[float]:
    """Returns, for the first GPU and each further one, the hours in which it is needed. `usage`: GPUs in use in each hour; a part
    of a GPU needs it for a part of the hour."""
    ordered = sorted(usage)
    most = int(-(-ordered[-1] // 1)) if ordered else 0
    found = []
    for number in range(most):  # the GPU after `number` others
        low, high = bisect_left(ordered, number), bisect_left(ordered, number + 1)
        found.append(len(ordered) - high + sum(value - number for value in ordered[low:high]))
    return found


def cheapest_mix(
    usage: Sequence[float], ways: Sequence[WayToBuy], spot: WayToBuy | None = None, spot_share: float = 0.0
) -> Mix:
    """Returns the mix of `ways`, one of which has no fixed price, that would have served the usage at the lowest price, if
    no used hour of a way with a fixed price costs more than one of spot. At most `spot_share` of the GPU-hours are served
    by `spot`, which serves hours instead of a way without a fixed price, also a part of the hours of a GPU."""
    needed, all_h = hours_by_gpu(usage), float(len(usage))
    rented = min((way for way in ways if not way.fixed_usd_h), key=lambda way: (way.used_usd_h, way.name))
    fixed = [way for way in ways if way.fixed_usd_h]
    most = spot_share * sum(needed) if spot and spot.used_usd_h < rented.used_usd_h else 0.0
    saved = rented.used_usd_h - spot.used_usd_h if spot else 0.0
    best = [min(fixed, key=lambda way: (way.cost(hours, all_h), way.name)) for hours in needed] if fixed else []
    # The GPUs that are needed in the most hours have a fixed price. Their best number depends on what spot saves on the others.
    left, of_fixed = sum(needed), 0.0
    number, lowest = 0, rented.cost(left, all_h) - saved * min(left, most)
    for place, way in enumerate(best):
        left -= needed[place]
        of_fixed += way.cost(needed[place], all_h)
        usd = of_fixed + rented.cost(left, all_h) - saved * min(left, most)
        if usd < lowest:
            number, lowest = place + 1, usd
    served: list[tuple[WayToBuy, float]] = list(zip(best[:number], needed, strict=False))
    for hours in needed[number:]:
        by_spot = min(hours, most)
        most -= by_spot
        if spot and by_spot > _NO_HOURS:
            served.append((spot, by_spot))
        if hours - by_spot > _NO_HOURS:
            served.append((rented, hours - by_spot))
    parts = []
    for way in (*ways, *([spot] if spot else [])):
        mine = [hours for other, hours in served if other is way]
        parts.append(MixPart(way.name, len(mine), sum(mine), sum(way.cost(each, all_h) for each in mine)))
    return Mix(tuple(parts))


def sensitivity(
    usage: Sequence[float],
    ways: Sequence[WayToBuy],
    spot: WayToBuy | None = None,
    spot_share: float = 0.0,
    change: float = 0.2,
) -> dict[str, tuple[Mix, Mix]]:
    """Returns by what changes (the price of each way, and the usage) the mix at a value lower and higher by this share."""
    factors = 1 - change, 1 + change

    def mix(way: WayToBuy, factor: float) -> Mix:
        """Returns the mix with another price of `way`."""
        other = replace(way, fixed_usd_h=way.fixed_usd_h * factor, used_usd_h=way.used_usd_h * factor)
        return cheapest_mix(
            usage, [other if each is way else each for each in ways], other if way is spot else spot, spot_share
        )

    found = {}
    for way in (*ways, *([spot] if spot else [])):
        found[f"price {way.name}"] = mix(way, factors[0]), mix(way, factors[1])
    less, more = ([value * factor for value in usage] for factor in factors)
    found["usage"] = (cheapest_mix(less, ways, spot, spot_share), cheapest_mix(more, ways, spot, spot_share))
    return found
