"""Energy from power that was measured, or else from what the kind of GPU usually draws, which is marked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
_CPU_W = 5  # of one core with its share of the machine


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules at the GPUs (or CPUs), before the data centre's own share."""

    measured_j: int = 0
    estimated_j: int = 0

    @property
    def joules(self) -> int:
        return self.measured_j + self.estimated_j

    def kwh(self, pue: float) -> float:
        """With cooling and losses: `pue` is what the whole site draws for each unit that computers draw."""
        return self.joules * pue / KWH_J


def estimate_j(gpu_type: str, gpus: int, cpus: int, seconds: int) -> int:
    """Of a run that nobody measured."""
    watts = gpus * _BOARD_W.get(gpu_type.lower(), _OTHER_W) if gpus else cpus * _CPU_W
    return watts * max(0, seconds)
