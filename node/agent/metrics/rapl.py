"""Energy of CPUs and memory from RAPL counters (Intel and AMD, through the kernel's powercap interface), under the
names that node_exporter uses. Only root can read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from agent.metrics.host import Figure, read_text

PACKAGE = "node_rapl_package_joules_total"
DRAM = "node_rapl_dram_joules_total"
_FOLDER = "class/powercap"
_DRIVERS = ("intel-rapl", "intel-rapl-mmio")  # two drivers for the same counters; the first with any is read


@dataclass(frozen=True)
class Zone:
    """One RAPL counter. `index`: number of its processor package."""

    metric: str
    index: str
    path: str


def rapl_zones(sys: str = "/sys") -> list[Zone]:
    """Returns each package and its memory zone. Core and graphics zones are parts of a package, and "psys" contains the
    packages, so they are left out."""
    top = f"{sys}/{_FOLDER}"
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    for driver in _DRIVERS:
        found: dict[str, list[Zone]] = {}
        for name in names:
            parts = name.split(":")
            zone_name = read_text(f"{top}/{name}/name").strip()
            if len(parts) == 2 and parts[0] == driver and zone_name.startswith("package"):
                index = zone_name.partition("-")[2]
                memory = [Zone(DRAM, index, f"{top}/{part}") for part in _memory(top, name, names)]
                found.setdefault(zone_name, [Zone(PACKAGE, index, f"{top}/{name}"), *memory])
        if found:
            return sorted((zone for own in found.values() for zone in own), key=lambda zone: zone.metric, reverse=True)
    return []


def _memory(top: str, package: str, names: list[str]) -> list[str]:
    return [
        name for name in names if name.startswith(f"{package}:") and read_text(f"{top}/{name}/name").strip() == "dram"
    ]


class Rapl:
    """Adds up the energy counters, starting at 0. They overflow every few minutes to hours, so `energy_j` must be
    called more often than that. The sum starts again with the agent; Prometheus treats that as a counter reset."""

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._zones: list[Zone] = []
        self._last: dict[str, int] = {}
        self._sums: dict[str, int] = {}  # microjoules

    def energy_j(self) -> Iterator[Figure]:
        """Yields the joules of each zone so far. A zone that can't be read is left out until it can be read."""
        self._zones = self._zones or rapl_zones(self._sys)  # the driver may be loaded after the agent has started
        for zone in self._zones:
            energy_uj = _number(f"{zone.path}/energy_uj")
            if energy_uj is None:
                continue
            used = energy_uj - self._last.get(zone.path, energy_uj)
            if used < 0:
                used += _number(f"{zone.path}/max_energy_range_uj") or -used
            self._last[zone.path] = energy_uj
            self._sums[zone.path] = self._sums.get(zone.path, 0) + max(0, used)
            yield zone.metric, {"index": zone.index, "path": zone.path}, self._sums[zone.path] / 1e6


def _number(path: str) -> int | None:
    text = read_text(path).strip()
    return int(text) if text.isdigit() else None
