"""The machine that is checked: its GPUs, and what the report says about it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config import Config
from agent.gpu.gpu_source import GpuSource
from agent.gpu.nvml import Nvml
from agent.gpu.simulated import Simulated

SIMULATED_GPUS = 2


@dataclass(frozen=True)
class Proof:
    """What the steps need: the agent's configuration for this machine and its source of GPU metrics. `library`: the
    CUDA driver's library, "" for that of the machine. `packages`: a folder with Slurm's Debian packages to install, "" for
    the machine's own sources; None: nothing may be installed."""

    config: Config
    source: GpuSource
    seconds: float
    library: str = ""
    packages: str | None = None


def open_proof(simulated_library: str, seconds: float, packages: str | None = None) -> Proof:
    """Returns the machine to check. Raises OSError when no driver answers."""
    if simulated_library:
        config = Config(head="127.0.0.1", simulated=True, gpus=SIMULATED_GPUS, product="SIMULATED GPU")
        devices = os.environ.get("HEADWAY_SIMULATED_DEVICES", "/dev")
        return Proof(config, Simulated(config, devices=devices), seconds, simulated_library, packages)
    source = Nvml()
    gpus = source.read()
    config = Config(head="127.0.0.1", gpus=len(gpus), product=gpus[0].name if gpus else "")
    return Proof(config, source, seconds, packages=packages)


def describe_machine(proof: Proof) -> Mapping[str, str]:
    """Returns what the report says about the machine, without names or addresses."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "GPUs": f"{proof.config.gpus} x {proof.config.product}",
        "Driver": proof.source.driver,
        "System": f"{_release()}, Linux {platform.release()}, {os.cpu_count()} CPUs, {memory:.0f} GiB",
        "Python": platform.python_version(),
        "torch": torch_version(),
    }


def torch_version() -> str:
    """Returns the version of this Python's torch and its CUDA, "none" without torch."""
    code = "import torch; print(torch.__version__, 'CUDA', torch.version.cuda, torch.cuda.is_available())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return ran.stdout.strip() or "none"


def _release() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return "unknown"
