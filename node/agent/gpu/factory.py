"""Opens the source of GPU metrics. The only module that knows whether GPUs are real."""

from __future__ import annotations

from agent.config import Config
from agent.gpu.dcgm import Dcgm
from agent.gpu.interface import Source
from agent.gpu.nvml import Nvml
from agent.gpu.simulated import Simulated


def open_source(config: Config) -> Source | None:
    """Returns the simulation, NVML or a DCGM exporter; None for a machine without GPUs."""
    if config.simulated:
        return Simulated(config)
    if not config.gpus:
        return None
    try:
        return Nvml()
    except OSError:
        return Dcgm()
