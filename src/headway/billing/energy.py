"""Energy, computed from measured power (of GPUs, and from the power counters of nodes). Where nothing was measured, it
is estimated from the usual power of that GPU type and of a CPU, and marked as an estimate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from headway.domain.billing.ledger import CpuAllocation

KWH_J = 3_600_000

# Watts of one GPU under load, from the manufacturer's data sheet (board power); used where nothing was measured.
_BOARD_W = {
    "h100": 700,
    "h200": 700,
    "b200": 1000,
    "a100": 400,
    "l40s": 350,
    "a10": 150,
    "l4": 72,
    "t4": 70,
    "v100": 300,
}
_OTHER_W = 400
_CPU_W = 5  # watts of one CPU with its share of the memory


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules used by GPUs and nodes, without the overhead of the data centre."""

    measured_j: int = 0
    estimated_j: int = 0

    @property
    def joules(self) -> int:
        """Returns the sum of measured and estimated joules."""
        return self.measured_j + self.estimated_j

    @property
    def marked(self) -> bool:
        """Returns whether more than 1 % is an estimate. The first seconds of a run, before the first reading, are
        always estimated and should not mark it."""
        return self.estimated_j * 100 > self.joules

    def kwh(self, pue: float) -> float:
        """Returns kWh including cooling and losses. `pue` (power usage effectiveness): the site's power divided by
        that of its computers."""
        return self.joules * pue / KWH_J


def estimate_j(gpu_type: str, gpu_s: int, cpu_s: int) -> int:
    """Returns the estimated joules of GPU-seconds and CPU-seconds that were not measured."""
    return max(0, gpu_s) * _BOARD_W.get(gpu_type.lower(), _OTHER_W) + max(0, cpu_s) * _CPU_W


Part = tuple[int, int, str]  # identifies a part of a run: job, start, group


def shared(
    drawn: Iterable[tuple[str, int, float]], step_s: int, holds: Iterable[CpuAllocation], cpus: Mapping[str, int]
) -> dict[Part, tuple[int, int]]:
    """Divides the energy of nodes among the runs to which their CPUs were allocated; returns (joules, CPU-seconds) for each.

    `drawn`: (node, time, watts), the mean over the `step_s` seconds before that time. `cpus`: number of CPUs of each
    node. Energy of CPUs that were allocated to no run is not assigned to any run."""
    on: dict[str, list[tuple[CpuAllocation, Fraction]]] = {}
    for hold in holds:
        for node in hold.nodes:
            on.setdefault(node, []).append((hold, Fraction(hold.cpus, len(hold.nodes))))
    found: dict[Part, tuple[Fraction, Fraction]] = {}
    for node, at, watts in drawn:
        lasted = ((hold, share, _together(hold, at - step_s, at)) for hold, share in on.get(node, ()))
        parts = [(hold, share * seconds) for hold, share, seconds in lasted if seconds]
        whole = max(Fraction(cpus.get(node, 0) * step_s), sum((cpu_s for _, cpu_s in parts), Fraction(0)))
        for hold, cpu_s in parts:
            if cpu_s and watts > 0:  # the power counters of virtual machines may not advance
                key = (hold.job, hold.start, hold.group)
                was = found.get(key, (Fraction(0), Fraction(0)))
                found[key] = (was[0] + Fraction(watts) * step_s * cpu_s / whole, was[1] + cpu_s)
    return {key: (round(joules), round(cpu_s)) for key, (joules, cpu_s) in found.items()}


def _together(hold: CpuAllocation, low: int, high: int) -> int:
    """Returns how many seconds from `low` until `high` the allocation lasted."""
    return max(0, min(hold.end or high, high) - max(hold.start, low))
