"""The interface to GPUs: `Gpu` and `GpuSource`. The readings come from NVML (nvml.py), from a DCGM exporter on this machine
(dcgm.py) or from the simulation (simulated.py); gpu_metrics.py names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from agent.gpu.mig import Instance


@dataclass
class Gpu:
    """One GPU, read once. `figures` holds the metrics that this GPU and this source have; a missing name means that the
    value is unknown."""

    index: int  # N of /dev/nvidiaN, by which Slurm knows it
    uuid: str
    name: str
    bus: str  # 00000000:3B:00.0
    figures: dict[str, float] = field(default_factory=dict)
    lost: bool = False  # listed, but no longer answers
    mig: list[Instance] | None = None  # its MIG instances; None: not asked, or the source can't tell


class GpuSource(Protocol):
    """Reads the GPUs of a machine."""

    simulated: bool
    driver: str
    cuda: int  # newest major version of CUDA that the driver supports; 0 = not known

    def read(self) -> list[Gpu]:
        """Returns all GPUs. Raises OSError when the driver does not answer."""
        ...
