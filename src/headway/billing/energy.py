"""Energy from power that was measured, at GPUs and by the counters of nodes; or else from what the kind of GPU and a CPU
usually draw, which is marked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from headway.domain.billing import CpuAllocation

KWH_J = 3_600_000

# Watts of one GPU under load, by its maker's data sheet (board power); for what was never measured.
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
_CPU_W = 5  # of one CPU with its share of the memory


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules at the GPUs and nodes, before the data centre's own share."""

    measured_j: int = 0
    estimated_j: int = 0

    @property
    def joules(self) -> int:
        return self.measured_j + self.estimated_j

    @property
    def marked(self) -> bool:
        """More than a hundredth is an estimate: the first seconds of a run, before anybody read a figure of it, are no matter."""
        return self.estimated_j * 100 > self.joules

    def kwh(self, pue: float) -> float:
        """With cooling and losses: `pue` is what the whole site draws for each unit that computers draw."""
        return self.joules * pue / KWH_J


def estimate_j(gpu_type: str, gpu_s: int, cpu_s: int) -> int:
    """Of GPU-seconds and CPU-seconds that nobody measured."""
    return max(0, gpu_s) * _BOARD_W.get(gpu_type.lower(), _OTHER_W) + max(0, cpu_s) * _CPU_W


Part = tuple[int, int, str]  # job, start, group: of a run


def shared(
    drawn: Iterable[tuple[str, int, float]], step_s: int, holds: Iterable[CpuAllocation], cpus: Mapping[str, int]
) -> dict[Part, tuple[int, int]]:
    """What nodes drew is shared out among the runs that held their CPUs: (joules, CPU-seconds) of each. `drawn`: (node, at,
    watts) in the `step_s` seconds before each moment; `cpus`: of each node. What nobody held is nobody's."""
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
            if cpu_s and watts > 0:  # counters of virtual machines may stand still
                key = (hold.job, hold.start, hold.group)
                was = found.get(key, (Fraction(0), Fraction(0)))
                found[key] = (was[0] + Fraction(watts) * step_s * cpu_s / whole, was[1] + cpu_s)
    return {key: (round(joules), round(cpu_s)) for key, (joules, cpu_s) in found.items()}


def _together(hold: CpuAllocation, low: int, high: int) -> int:
    """Seconds of a stretch that it lasted in."""
    return max(0, min(hold.end or high, high) - max(hold.start, low))
