"""Opens the source of GPU metrics. The only module that knows whether GPUs are real."""

from __future__ import annotations

from agent.config import Config
from agent.gpu.dcgm import Dcgm
from agent.gpu.gpu_source import Gpu, GpuSource
from agent.gpu.mig import MigDriver
from agent.gpu.nvml import Nvml
from agent.gpu.nvml_mig import NvmlMig
from agent.gpu.simulated import Simulated
from agent.gpu.simulated_mig import SimulatedMig


def open_source(config: Config) -> GpuSource | None:
    """Returns the simulation, NVML or a DCGM exporter; None for a machine without GPUs."""
    if config.simulated:
        return Simulated(config)
    if not config.gpus:
        return None
    try:
        return Nvml(mig=NvmlMig() if config.mig else None)
    except OSError:
        return Dcgm()


class LateSource:
    """A `GpuSource` that is opened by its first reading, because a broken driver may block for ever and only the thread that
    reads the GPUs may wait for it. `opened`: what delivers the readings; None until one has succeeded, since the driver
    may be loaded after the agent has started."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.simulated, self.driver, self.cuda = config.simulated, "", 0
        self.opened: GpuSource | None = None

    def read(self) -> list[Gpu]:
        """Returns all GPUs. Raises OSError when the driver does not answer."""
        source = self.opened or open_source(self._config)
        found = source.read() if source else []
        if source and self.opened is None:
            self.opened, self.driver, self.cuda = source, source.driver, source.cuda
        return found


def open_mig(config: Config) -> MigDriver:
    """Returns the driver's functions for MIG. Raises OSError where the machine has no driver."""
    return SimulatedMig(config.gpus) if config.simulated else NvmlMig()
