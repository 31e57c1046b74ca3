"""Round numbers for the axis of a chart. Pure."""

from __future__ import annotations

import math

_LEAST = 3  # ticks that an axis should have


def even_ticks(low: float, high: float) -> list[float]:
    """Returns the multiples of 1, 2 or 5 times a power of ten from `low` to `high`: at least 3, at most 7."""
    if not low < high:
        return [low]
    power = math.floor(math.log10(high - low))
    for step in (factor * 10.0**exponent for exponent in range(power, power - 3, -1) for factor in (5, 2, 1)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 >= _LEAST:
            return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
    return [low, high]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns powers of ten from `low` to `high`, both above 0; 2 and 5 times a power too if there are fewer than 3."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 2, 5)):
        found = [value for power in powers for factor in factors if low <= (value := factor * 10.0**power) <= high]
        if len(found) >= _LEAST:
            break
    every = max(1, len(found) // 6)
    return [float(f"{value:.6g}") for value in found[::every]]
