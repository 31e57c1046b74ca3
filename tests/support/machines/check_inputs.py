"""Inputs of the node checks: a machine with two healthy GPUs, unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from agent import config
from agent.checks import runner
from agent.gpu import gpu_metrics, gpu_source

PLAN = config.Config(head="h", simulated=True, gpus=2, gpu_memory_mib=80000, memory_mib=1000, expects={"nvlinks": 18})
SOUND = {
    gpu_metrics.NVLINKS: 18,
    gpu_metrics.PCIE_WIDTH: 16,
    gpu_metrics.PCIE_MAX_WIDTH: 16,
    gpu_metrics.THROTTLE: 0,
    gpu_metrics.FB_USED: 0,
}


def gpus(**figures: float) -> list[Any]:
    """Returns two GPUs; the second has the given figures, or is lost if `lost` is among them."""
    second = gpu_source.Gpu(1, "b", "H100", "", {**SOUND, **figures}, lost="lost" in figures)
    return [gpu_source.Gpu(0, "a", "H100", "", dict(SOUND)), second]


def seen(**more: Any) -> Any:
    """Returns the state of a machine that the checks read; `more` replaces any field."""
    known: dict[str, Any] = {"config": PLAN, "now": 1000.0, "gpus": gpus(), "gpus_at": 999.0, "sealed_at": 999.0}
    return runner.MachineReading(**{**known, **more})
