"""The configuration of a node with simulated GPUs."""

from __future__ import annotations

from agent import config

PLAN = config.Config(
    head="10.0.0.1",
    simulated=True,
    gpus=4,
    gpu_type="h100",
    product="NVIDIA H100 80GB HBM3",
    gpu_memory_mib=81559,
    expects={"nvlinks": 18},
)
